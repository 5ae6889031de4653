"""Sound as bytes: from the model's samples to the format, rate, tempo and volume a client asks for."""

from gateway.sound.delivery import Delivery, Format, check_codecs, opus_bits, rate_of
from gateway.sound.pcm import to_int16
from gateway.sound.pipeline import Pipeline

__all__ = ["Delivery", "Format", "Pipeline", "check_codecs", "opus_bits", "rate_of", "to_int16"]
