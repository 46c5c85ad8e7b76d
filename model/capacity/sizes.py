"""Sizes and numbers as text.  What is shown rounded begins with `~`; everything else is exact."""

import re
from fractions import Fraction

from kvoracle.model.errors import UsageError

BINARY = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
UNITS = {**BINARY, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
EXACT_DIGITS, ROUNDED_DIGITS = 3, 2


def parse_number(name: str, text: str) -> Fraction:
    """A decimal fraction, exactly."""
    if not re.fullmatch(r"\d{1,15}(\.\d{1,15})?", text):
        raise UsageError(f"{name} {text!r} is not a number; write it as 0.92.")
    return Fraction(text)


def parse_size(name: str, text: str) -> Fraction:
    """So many bytes, exactly; a fraction of a byte too, as 52.32 GiB has one."""
    match = re.fullmatch(r"(\d{1,15}(?:\.\d{1,15})?) ?([KMGT]?i?B)", text)
    if match is None or match[2] not in UNITS:
        raise UsageError(f"{name} {text!r} is not a size; write it as 52.32GiB, 81559MiB or 80GB.")
    return Fraction(match[1]) * UNITS[match[2]]


def number(value: Fraction | int, digits: int = ROUNDED_DIGITS) -> str:
    """As it is where three decimals (or `digits`) are enough, else rounded to `digits` of them."""
    value, most = Fraction(value), max(EXACT_DIGITS, digits)
    if round(value, most) != value:
        return f"~{float(value):,.{digits}f}"
    text = f"{float(value):,.{most}f}"
    return text.rstrip("0").rstrip(".")


def size(count_bytes: Fraction | int) -> str:
    """In the largest binary unit that leaves a number of at least 1."""
    whole = Fraction(count_bytes)
    unit = next((unit for unit in reversed(BINARY) if whole >= BINARY[unit]), "B")
    return f"{number(whole / BINARY[unit])} {unit}"


def percent(share: Fraction) -> str:
    """A share of 1."""
    return f"{number(100 * share)} %"


def rounded_down(dividend: str, divisor: str, quotient: Fraction) -> str:
    """A division and what became of its fraction."""
    end = ", exactly" if quotient.denominator == 1 else f" = {number(quotient)}, rounded down"
    return f"{dividend} / {divisor}{end}"
