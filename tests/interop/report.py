"""How an interop script says what it found: one line a check, read by `cargo xtask interop python`.

    ok NAME
    FAIL NAME: evidence
    gap NAME: why the server need not do this yet

The script ends with 1 if anything failed.
"""

import argparse
import contextlib
import os
import sys


class Gap(Exception):
    """Raised by a check that met something the server is known not to do yet."""


class Report:
    """Counts checks; one that raises does not stop those after it."""

    def __init__(self):
        self.failures = 0

    @contextlib.contextmanager
    def check(self, name):
        try:
            yield
        except Gap as gap:
            print(f"gap {name}: {gap}", flush=True)
        except Exception as error:  # any client error is evidence
            self.failures += 1
            text = " ".join(str(error).split()) or "no message"
            print(f"FAIL {name}: {type(error).__name__}: {text}", flush=True)
        else:
            print(f"ok {name}", flush=True)

    def conclude(self):
        sys.exit(1 if self.failures else 0)


def expect(found, wanted, what):
    """An assertion whose message carries both values."""
    if found != wanted:
        raise AssertionError(f"{what}: found {found!r}, wanted {wanted!r}")


def arguments(description):
    """The options every interop script takes; the password comes in LANDFAST_PASSWORD."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--share", required=True)
    parser.add_argument("--guests", help="a share that guests may read")
    parser.add_argument("--user", required=True)
    options = parser.parse_args()
    options.password = os.environ["LANDFAST_PASSWORD"]
    return options


def pattern(length, seed):
    """Bytes in which every 8-byte word names its own place."""
    words = (length + 7) // 8
    return b"".join((seed * 1_000_003 + n).to_bytes(8, "little") for n in range(words))[:length]
