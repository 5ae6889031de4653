"""The whole recipe, step after step: ``python -m models.recipe``. What is done already is not done again."""

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
