"""ReTA as its equations and its released code say it, literally and slowly: what the library must agree with.

Full covariance tensors, a full SVD, autograd, torch.optim.AdamW, the cache as Python lists. Shares no code
with the library. `PAPER` and `RELEASED` are the two versions; every switch can be set on its own.
"""

# ruff: noqa: C408, E741, SIM300
import math
from collections import Counter

import torch

PAPER = dict(
    M=3, n=64, gamma=2.0, size=3, alpha=6.0, beta=5.0, q=0.1, lr=5e-4, eps=1e-3, wd=0.1, steps=1,
    binning="ascending", edges="floor_mk", projection="svd", source="all", refresh="initial", vote_text="unit",
    evidence="view0", cer=True, score="log", ratio=1.0, stability=True, consistency=True,
    ddc=True, loss_gate="w1", adam_state="exact", residuals="own", persist=False, l_ent=1.0, l_surr=0.3, l_align=0.02,
    ent_views="topq", surr_views="confident", surr_q=0.1, center="last", cov="full", divisor="M",
    align_text="last", symmetric=True, align_classes="cached", tau=0.01,
    global_gate="entropy_and_w1", gate_entropy="before", cutoff=0.1, normaliser="ln_C", prior=0.0, normalise=True,
    cache_logits=True, gauss_logits=True, eta=0.4, gauss_cache=False, gauss_views="single",
)  # fmt: skip
RELEASED = PAPER | dict(
    edges="m_floor", source="last", refresh="on_change", vote_text="running", loss_gate="surr_only",
    ent_views="view0", surr_views="refined", center="mean", cov="diag", divisor="M+1", symmetric=False,
    global_gate="entropy", gate_entropy="after", normaliser="log2_M", prior=1.0, normalise=False,
    gauss_cache=True, gauss_views="topq",
)  # fmt: skip


def unit(x):
    return x / x.norm(dim=-1, keepdim=True)


def entropy_of(p):
    return -torch.special.xlogy(p, p).sum(-1)


def most_confident(logits, q):
    h = entropy_of(logits.softmax(-1)).tolist()
    keep = max(1, int(len(h) * q))
    return sorted(range(len(h)), key=lambda i: h[i])[:keep]


def members_of(prompts, M, binning, edges):
    """[M, C, d]: rank each class's prompts by their cosines to the others, pool the first Q_m."""
    out = []
    for group in prompts:
        t = unit(group)
        K = len(t)
        sim = [sum(round(float(t[i] @ t[j]), 12) for j in range(K) if j != i) for i in range(K)]
        order = sorted(range(K), key=lambda i: round(sim[i], 9))
        if binning == "descending":
            order = sorted(range(K), key=lambda i: -round(sim[i], 9))
        rows = []
        for m in range(1, M + 1):
            Q = math.floor(m * K / M + 1e-12)
            if edges == "m_floor":
                Q = K if m == M else m * (K // M)
            chosen = order[:Q] if binning != "uniform" else [i * K // Q for i in range(Q)]
            rows.append(unit(t[chosen].mean(0)))
        out.append(torch.stack(rows))
    return torch.stack(out, 1)


def projector(members, n, kind, source):
    """The dense d x d matrix Phi = V~^T V~ of Eq. 6 and 7."""
    used = members if source == "all" else members[-1:]
    rows = used.transpose(0, 1).reshape(-1, members.shape[-1])
    d = rows.shape[-1]
    if kind == "lda":
        mean = used.mean(0)
        within = sum(torch.outer(x, x) for x in (used - mean).reshape(-1, d))
        between = len(used) * sum(torch.outer(x, x) for x in mean - mean.mean(0))
        within = within + 1e-3 * torch.trace(within + between) / d * torch.eye(d, dtype=rows.dtype)
        values, vectors = torch.linalg.eig(torch.linalg.solve(within, between))
        order = values.real.argsort(descending=True)[: min(n, members.shape[1] - 1, d)]
        A = vectors.real[:, order]
        return A @ torch.linalg.pinv(A)
    if kind == "pca":
        rows = rows - rows.mean(0)
    _, S, Vt = torch.linalg.svd(rows, full_matrices=False)
    kept = Vt[: min(n, int((S > 1e-7 * S[0]).sum()))]
    return kept.T @ kept


class HalfAdamW:
    """AdamW as torch has it, but the second moment is kept in fp16 between its uses."""

    def __init__(self, r, lr, eps, weight_decay):
        self.r, self.lr, self.eps, self.wd = r, lr, eps, weight_decay
        self.m, self.v, self.t = torch.zeros_like(r), torch.zeros_like(r).half(), 0

    def zero_grad(self):
        self.r.grad = None

    @torch.no_grad()
    def step(self):
        g, self.t = self.r.grad, self.t + 1
        self.m = 0.9 * self.m + 0.1 * g
        self.v = (0.999 * self.v.double() + 0.001 * g * g).half()
        root = (self.v.double() / (1 - 0.999**self.t)).sqrt()
        self.r.mul_(1 - self.lr * self.wd).sub_(self.lr * (self.m / (1 - 0.9**self.t)) / (root + self.eps))


class Reference:
    """One stream: call it with the views of one image after another."""

    def __init__(self, prompts, scale, options):
        self.o = o = dict(options)
        self.s = scale
        self.G = members_of(prompts, o["M"], o["binning"], o["edges"])
        self.R = torch.zeros_like(self.G)
        self.n = 0
        self.cache = {}
        self.Phi0 = None if o["projection"] == "none" else self.project_from(self.G)

    def project_from(self, members):
        o = self.o
        return projector(unit(members), o["n"], o["projection"], o["source"])

    def __call__(self, V):
        o, s = self.o, self.s
        M, C, _ = self.G.shape
        T = unit(self.G + self.R)
        # evidence, pseudo-label, entropy
        logits = s * V @ T[-1].T
        if o["evidence"] == "topq_mean":
            top = most_confident(logits, o["q"])
            x, l = V[top].mean(0), logits[top].mean(0)
            H = entropy_of(logits[top].softmax(-1).mean(0))
        else:
            x, l = V[0], logits[0]
            H = entropy_of(l.softmax(-1))
        y = int(l.argmax())
        # committee
        Phi = self.Phi0
        if Phi is not None and o["refresh"] == "on_change":
            Phi = self.project_from(self.G)
        z = x if Phi is None else Phi @ x
        text = T if o["vote_text"] == "unit" else self.G
        votes = [int((text[m] @ z).argmax()) for m in range(M)]
        counts = Counter(votes)
        n_star = max(counts.values())
        y_star = min(c for c, k in counts.items() if k == n_star)
        R = o["gamma"] if y_star != y and o["consistency"] else 1.0
        S = M / n_star if o["stability"] else 1.0
        form = dict(
            log=lambda v: 1 + math.log(v), product=lambda v: v, exp=lambda v: math.exp(v - 1), sqrt=math.sqrt
        )
        w = 1 + o["ratio"] * (form[o["score"]](R * S) - 1)
        if M == 1 or not o["cer"]:
            w = 1.0
        reliable = w == 1
        # priority cache
        score = float(w * H)
        cached = self.insert(y, x, score)
        classes = sorted(self.cache)
        P = torch.stack([unit(torch.stack([f for f, _ in self.cache[c]]).mean(0)) for c in classes])

        def A(v):
            full = torch.zeros(*v.shape[:-1], C, dtype=v.dtype)
            full[..., classes] = o["alpha"] * torch.exp(-o["beta"] * (1 - v @ P.T))
            return full

        limit = (
            o["cutoff"]
            * dict(ln_C=math.log(C), log2_C=math.log2(C), log2_M=math.log2(M), none=1.0)[o["normaliser"]]
        )
        confident = bool(H < limit)
        gate = dict(w1=reliable, all=True, surr_only=True, algorithm1=reliable and confident)[o["loss_gate"]]
        surr = reliable if o["loss_gate"] == "surr_only" else True
        r = self.R.clone()
        learns = o["ddc"] and o["steps"] > 0
        if learns and gate:
            r = self.learn(T, V, x, y, P, classes, A, surr)
        T2 = unit(self.G + r)
        # answer
        x2 = V[0]
        if o["evidence"] == "topq_mean":
            x2 = V[most_confident(s * V @ T2[-1].T, o["q"])].mean(0)
        clip, cache = s * T2[-1] @ x2, A(x2)
        p_cls = (clip + cache if o["cache_logits"] else clip).softmax(-1)
        rows = x2[None] if o["gauss_views"] == "single" else V
        g = s * rows @ T2.mean(0).T
        if o["gauss_cache"] and o["cache_logits"]:
            g = g + A(rows)
        if o["gauss_views"] == "topq":
            g = g[most_confident(g, o["q"])]
        p_gauss = g.softmax(-1).mean(0)
        p = (p_cls + o["eta"] * p_gauss) / (1 + o["eta"]) if o["ddc"] and o["gauss_logits"] else p_cls
        # global text
        if o["gate_entropy"] == "after":
            confident = bool(entropy_of((clip + cache).softmax(-1)) < limit)
        updated = learns and confident and (reliable or o["global_gate"] == "entropy")
        if updated:
            self.n += 1
            before = self.n - 1 + o["prior"]
            self.G = self.G * before / (before + 1) + T2 / (before + 1)
            if o["normalise"]:
                self.G = unit(self.G)
        if o["persist"]:
            self.R = r
        return dict(
            probs=p, p_cls=p_cls, p_gauss=p_gauss, logits=clip + cache, votes=votes, w=w, score=score, entropy=float(H),
            label=y, cached=cached, updated=updated, reliable=reliable, confident=confident,
        )  # fmt: skip

    def insert(self, y, x, score):
        items = self.cache.setdefault(y, [])
        if len(items) < self.o["size"]:
            items.append((x, score))
        elif score < items[-1][1]:
            items[-1] = (x, score)
        else:
            return False
        items.sort(key=lambda item: item[1])
        return True

    def refined(self, V, T, y):
        """<z, centre> / tau + z^T (S_cc + S_yy - S_cy - S_yc) z / 2 tau^2, the covariances in full."""
        o, s = self.o, self.s
        M = len(T)
        mu = T.mean(0)
        D = T - mu
        div = dict(M=M, **{"M+1": M + 1, "M-1": max(1, M - 1)})[o["divisor"]]
        if o["cov"] == "full":
            own = torch.einsum("mcd,mce->cde", D, D) / div
            cross = torch.einsum("mcd,me->cde", D, D[:, y]) / div
            W = own + own[y] - cross - cross.transpose(1, 2)
            sigma = torch.einsum("bd,cde,be->bc", V, W, V)
        else:
            by_dim = D.permute(2, 1, 0)
            cov = by_dim @ by_dim.transpose(1, 2) / div
            every = torch.einsum("bd,dik->bik", V**2, cov)
            own = torch.diagonal(every, dim1=1, dim2=2)
            sigma = own + every[:, y, y][:, None] - every[:, y, :] - every[:, :, y]
        centre = T[-1] if o["center"] == "last" else mu
        return s * V @ centre.T + s**2 / 2 * sigma

    def learn(self, T0, V, x, y, P, classes, A, with_surr):
        o, s = self.o, self.s
        C = T0.shape[1]
        with torch.no_grad():
            by_cls = most_confident(s * V @ T0[-1].T + A(V), o["q"])
            E = V[by_cls] if o["ent_views"] == "topq" else x[None]
            chosen = by_cls if o["ent_views"] == "topq" else [0]
            AE = A(E)
            by_refined = with_surr and o["l_surr"] and o["surr_views"] == "refined"
            kept = None
            if with_surr and o["l_surr"] and not by_refined:
                kept = most_confident(s * V @ T0[-1].T + A(V), o["surr_q"])
        shape = T0[0] if o["residuals"] == "shared" else T0
        start = self.R[0] if o["residuals"] == "shared" else self.R
        r = start.clone().expand_as(shape).contiguous().requires_grad_()
        adam = torch.optim.AdamW([r], lr=o["lr"], eps=o["eps"], weight_decay=o["wd"])
        if o["adam_state"] == "fp16":
            adam = HalfAdamW(r, o["lr"], o["eps"], o["wd"])
        first = None
        for _ in range(o["steps"]):
            with torch.enable_grad():
                T = unit(self.G + r)
                loss = o["l_ent"] * self.first(s * E @ T[-1].T + AE, chosen)
                if by_refined or kept is not None:
                    refined = self.refined(V if by_refined else V[kept], T, y)
                    if by_refined:
                        first = most_confident(refined.detach(), o["surr_q"]) if first is None else first
                        refined = refined[first]
                    target = torch.full((len(refined),), y)
                    loss = loss + o["l_surr"] * torch.nn.functional.cross_entropy(refined, target)
                loss = loss + o["l_align"] * self.align(T, P, classes, C)
            adam.zero_grad()
            loss.backward()
            adam.step()
        return r.detach().expand_as(T0)

    def first(self, logits, chosen):
        """L_ent of the logits of the chosen views."""
        return entropy_of(logits.softmax(-1).mean(0))

    def align(self, T, P, classes, C):
        o = self.o
        words = T[-1] if o["align_text"] == "last" else T.mean(0)
        if o["align_classes"] == "all":
            full = torch.zeros(C, P.shape[-1], dtype=P.dtype)
            full[classes] = P
            P, classes = full, list(range(C))
        logits = P @ words[classes].T / o["tau"]
        target = torch.arange(len(classes))
        loss = torch.nn.functional.cross_entropy(logits, target)
        return loss + torch.nn.functional.cross_entropy(logits.T, target) if o["symmetric"] else loss


class Rewarded(Reference):
    """With the praise of a second model in place of L_ent: `second` holds what it sees of the image's views."""

    def __init__(self, prompts, scale, options, words):
        super().__init__(prompts, scale, options)
        self.words, self.second = words, None

    def first(self, logits, chosen):
        total = 0.0
        for row, view in zip(logits, chosen):
            top = sorted(range(len(row)), key=lambda c: -float(row[c].detach()))[:3]
            praise = [2.5 * max(float(self.second[view] @ self.words[c]), 0.0) for c in top]
            mean = sum(praise) / len(praise)
            for c, r in zip(top, praise):
                total = total - (r - mean) * row.log_softmax(-1)[c] / len(top)
        return total / len(logits)
