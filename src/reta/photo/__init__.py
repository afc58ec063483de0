"""`reta-photo`: a two-tower model for photographs, put together from ordinary registry packages.

For machines that cannot reach a model hub. EfficientNet-Lite0 sees, all-MiniLM-L6-v2 reads, and a small head
that comes with this library joins them. It is far below CLIP: see `weights/PHOTO_CARD.md`.
"""

from reta.photo.loading import load as load
