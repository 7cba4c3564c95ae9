"""Entry point of the command ``partwise``, also as ``python -m partwise``."""

from __future__ import annotations


def main() -> None:
    """Run the command; Ctrl-C during the imports ends it without a traceback."""
    try:
        from partwise.apps.cli import main as command
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    command()


if __name__ == "__main__":
    main()
