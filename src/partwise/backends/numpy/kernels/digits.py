"""Numbers as text: "%.9g" of each, without the interpreter."""

from __future__ import annotations

import numba as nb
import numpy as np

from partwise.backends.numpy.kernels._options import OPTIONS

#: Ten to the powers of 0 to 300, each as near as can be.
POWERS = np.array([float(f"1e{power}") for power in range(301)])
#: Bytes of a number at most, with the tab before it.
MOST = 17


@nb.njit(**{**OPTIONS, "fastmath": False})
def digit_rows(data, powers, labels, ends, out, odd):
    """Lines of a table: its label, then a tab and nine digits for each number.

    ``labels`` are the bytes of all labels, which stop at ``ends``. Returns how many bytes of
    ``out`` were written, and how many numbers were left out: those that are not finite, or nearly
    1e300, or so near the middle between two texts that rounding decides. ``odd`` receives where
    in ``out`` each belongs, and which it is.
    """
    at, missing, begin = 0, 0, 0
    for i in range(data.shape[0]):
        for j in range(begin, ends[i]):
            out[at] = labels[j]
            at += 1
        begin = ends[i]
        for column in range(data.shape[1]):
            out[at] = 9
            at += 1
            x = data[i, column]
            a = abs(x)
            sure = a == 0 or 1e-290 < a < 1e290
            m, e = 0, 0
            if sure and a > 0:
                e = int(np.floor(np.log10(a)))
                for _ in range(2):
                    scaled = a * powers[8 - e] if e < 8 else a / powers[e - 8]
                    if scaled >= 1e8:
                        break
                    e -= 1  # the logarithm was rounded up
                m = int(scaled)
                sure = abs(scaled - m - 0.5) > 1e-6  # the product is off by 2.3e-7 at most
                m += scaled - m > 0.5
                if m >= 1_000_000_000:
                    m, e = m // 10, e + 1
            if not sure:
                odd[missing, 0], odd[missing, 1] = at, i * data.shape[1] + column
                missing += 1
                continue
            if x < 0 or (x == 0 and np.signbit(x)):
                out[at] = 45
                at += 1
            digits = 9 if m else 1
            while m and m % 10 == 0:
                m //= 10
                digits -= 1
            small = e < -4 or e >= 9
            lead = 1 if small else e + 1  # digits before the point
            if lead < 1:
                for j in range(2 - lead):
                    out[at + j] = 46 if j == 1 else 48
                at += 2 - lead
                lead = digits
            for j in range(digits - 1, -1, -1):
                out[at + j + (j >= lead)] = 48 + m % 10
                m //= 10
            if digits > lead:
                out[at + lead] = 46
            for j in range(digits, lead):
                out[at + j] = 48
            at += max(lead, digits) + (digits > lead)
            if small:
                out[at] = 101
                out[at + 1] = 45 if e < 0 else 43
                e = abs(e)
                at += 2
                if e > 99:
                    out[at] = 48 + e // 100
                    at += 1
                out[at], out[at + 1] = 48 + e // 10 % 10, 48 + e % 10
                at += 2
        out[at] = 10
        at += 1
    return at, missing
