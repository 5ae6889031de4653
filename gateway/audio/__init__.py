"""Audio encoding: from the model's samples to the format, rate, tempo and volume of a request."""

from gateway.audio.delivery import Delivery, Format, check_codecs, format_named, opus_bits, rate_of
from gateway.audio.pcm import to_int16
from gateway.audio.pipeline import Pipeline

__all__ = ["Delivery", "Format", "Pipeline", "check_codecs", "format_named", "opus_bits", "rate_of", "to_int16"]
