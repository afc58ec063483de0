"""Every hyper-parameter and switch of ReTA. The defaults are the paper; equation numbers are the paper's."""

from __future__ import annotations

from dataclasses import dataclass

from reta.errors import BadInput
from reta.methods.base import Base, param


@dataclass(frozen=True, kw_only=True)
class Fields(Base):
    """Grouped as the paper tells it: views, committee, cache, calibration, global text, inference."""

    views: int = param(64, "N: how many views are used", low=1, eq="19")
    recipe: str = param("augmix", "how views are made", choices=("plain", "crops", "augmix"), eq="19")
    evidence: str = param(
        "view0",
        "what is voted on, cached and answered: the plain view, or the mean of the confident views",
        choices=("view0", "topq_mean"),
        eq="15",
    )
    share: float = param(
        0.1, "share of the views, the most confident, that count", low=0, high=1, static=True, eq="19"
    )

    # Consistency-aware entropy reweighting
    cer: bool = param(True, "consistency-aware entropy reweighting; off: w = 1 for every image", eq="14")
    members: int = param(3, "M: adjacent text embeddings per class", low=1, eq="5")
    binning: str = param(
        "ascending",
        "how a class's prompts are pooled",
        choices=("ascending", "descending", "uniform"),
        eq="5",
    )
    bin_edges: str = param(
        "floor_mk", "Q_m: floor(m K / M), or m floor(K / M)", choices=("floor_mk", "m_floor"), eq="5"
    )
    projection: str = param("svd", "axes of the text subspace", choices=("svd", "pca", "lda", "none"), eq="6")
    rank: int = param(64, "n: axes that are kept, at most", low=1, eq="7")
    proj_source: str = param(
        "all", "the axes are those of all members, or of the last ones", choices=("all", "last"), eq="6"
    )
    proj_refresh: str = param(
        "initial",
        "axes of the initial text, or of the text as it is",
        choices=("initial", "on_change"),
        eq="6",
    )
    vote_text: str = param(
        "unit",
        "text in the votes: unit members, or the stored running mean",
        choices=("unit", "running"),
        eq="9",
    )
    stability: bool = param(True, "S counts; off: S = 1", eq="12")
    consistency: bool = param(True, "R counts; off: R = 1", eq="11")
    gamma: float = param(2.0, "R of a vote that differs from the prediction", low=1, eq="11")
    score: str = param(
        "log",
        "w: 1 + ln RS, RS, exp(RS - 1) or sqrt RS",
        choices=("log", "product", "exp", "sqrt"),
        eq="13",
    )
    ratio: float = param(1.0, "scales w - 1", low=0, eq="13")

    # Cache
    slots: int = param(3, "SZ: cached images per class", low=1, eq="15")
    alpha: float = param(6.0, "weight of the cache logits", low=0, eq="4")
    beta: float = param(5.0, "sharpness of the cache logits", low=0, eq="4")

    # Diversity-driven distribution calibration
    ddc: bool = param(
        True, "diversity-driven calibration; off: the text stays, no Gaussian in the answer", eq="18"
    )
    loss_gate: str = param(
        "w1",
        "images that move the members: w = 1, all, all but L_surr only where w = 1, or w = 1 and H low",
        choices=("w1", "all", "surr_only", "algorithm1"),
        eq="16",
    )
    steps: int = param(1, "AdamW steps for each image; 0: calibration without training", low=0, eq="16")
    lr: float = param(5e-4, "learning rate", low=0, eq="16")
    eps: float = param(1e-3, "epsilon of AdamW", low=1e-12, eq="16")
    weight_decay: float = param(0.1, "weight decay of AdamW (nothing at r = 0)", low=0, eq="16")
    adam_state: str = param(
        "exact",
        "AdamW's second moment: exact, or rounded to fp16 as released",
        choices=("exact", "fp16"),
        eq="16",
    )
    residuals: str = param(
        "own", "one residual per member, or one per class", choices=("own", "shared"), eq="16"
    )
    persist_residual: bool = param(False, "residuals go on from image to image", eq="16")
    lambda_ent: float = param(1.0, "weight of L_ent", low=0, eq="18")
    lambda_surr: float = param(0.3, "lambda_1: weight of L_surr", low=0, eq="18")
    lambda_align: float = param(0.02, "lambda_2: weight of L_align", low=0, eq="18")
    ent_views: str = param(
        "topq", "L_ent sees the confident views together, or the evidence", choices=("topq", "view0"), eq="19"
    )
    surr_views: str = param(
        "confident",
        "L_surr sees the views of lowest entropy of p_cls, or of its own refined logits",
        choices=("confident", "refined"),
        eq="20",
    )
    surr_q: float = param(0.1, "share of the views L_surr sees", low=0, high=1, eq="20", static=True)
    surr_center: str = param(
        "last", "centre of the Gaussian in L_surr: member M, or the mean", choices=("last", "mean"), eq="20"
    )
    cov: str = param("full", "covariance in L_surr: full, or its diagonal", choices=("full", "diag"), eq="20")
    cov_divisor: str = param("M", "what the covariance is divided by", choices=("M", "M+1", "M-1"), eq="20")
    align_text: str = param(
        "last", "text in L_align: member M, or the mean of the members", choices=("last", "mean"), eq="21"
    )
    align_symmetric: bool = param(True, "L_align in both directions; off: image to text", eq="21")
    align_classes: str = param(
        "cached",
        "L_align is over the classes with a cached image, or all",
        choices=("cached", "all"),
        eq="21",
    )
    align_tau: float = param(0.01, "temperature of L_align", low=1e-6, eq="21")

    # Global text
    global_gate: str = param(
        "entropy_and_w1",
        "images that join the global text: of low entropy, or also w = 1",
        choices=("entropy", "entropy_and_w1"),
        eq="17",
    )
    gate_entropy: str = param(
        "before",
        "the gate's entropy: H of the evidence, or of the adapted p_cls",
        choices=("before", "after"),
        eq="17",
    )
    cutoff: float = param(
        0.1, "tau_c: entropy over the normaliser below which an image counts as confident", low=0, eq="17"
    )
    normaliser: str = param(
        "ln_C",
        "what the entropy in nats is divided by for the gate; none: the cutoff is in nats",
        choices=("ln_C", "log2_C", "log2_M", "none"),
        eq="17",
    )
    prior: float = param(
        0.0, "how many accepted images the text before the first one counts as", low=0, eq="17"
    )
    normalise_global: bool = param(True, "the stored text is made unit after an update", eq="17")

    # Inference
    cache_logits: bool = param(True, "the cache takes part in the answer", eq="4")
    gauss_logits: bool = param(True, "the Gaussian takes part in the answer", eq="23")
    eta: float = param(0.4, "weight of p_gauss against p_cls", low=0, eq="23")
    gauss_cache: bool = param(False, "p_gauss has the cache logits added", eq="22")
    gauss_views: str = param(
        "single",
        "p_gauss of the plain view, or its mean over the views it is most sure of",
        choices=("single", "topq"),
        eq="22",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.projection == "lda" and self.proj_refresh == "on_change":
            raise BadInput("projection='lda' is of the initial text only: use proj_refresh='initial'")

    @property
    def cls_weight(self) -> float:
        """The share of p_cls in the answer, 1 / (1 + eta); the released code sets this number."""
        return 1 / (1 + self.eta)
