"""``python -m deploy.group.healthcheck URL``: exits with 0 if the URL answers 200, for containers without curl."""

from __future__ import annotations

import sys
import urllib.request

TIMEOUT = 2.0  # seconds


def main(url: str) -> int:
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT) as reply:
            return 0 if reply.status == 200 else 1
    except OSError as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
