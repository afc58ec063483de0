"""Vision-language models: any of open_clip's, the embedded ones, or one of your own behind `Backbone`."""

from reta.backbone.loading import SPECIAL as SPECIAL
from reta.backbone.loading import load as load
from reta.backbone.openclip import OpenClip as OpenClip
from reta.backbone.protocol import Backbone as Backbone
from reta.backbone.protocol import Preprocess as Preprocess
from reta.backbone.source import EMBEDDED as EMBEDDED
