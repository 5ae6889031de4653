"""``python -m models.recipe``: runs all steps in order and skips the finished ones."""

from __future__ import annotations

from models.recipe import corpus, decoder, encode, encoder, export, model, quantizer
from models.recipe.settings import parse_settings


def main() -> None:
    settings = parse_settings(__doc__)
    for step in (corpus, quantizer, encode, model, decoder, encoder, export):
        print((step.__doc__ or "").partition("\n")[0])
        step.make(settings)


if __name__ == "__main__":
    main()
