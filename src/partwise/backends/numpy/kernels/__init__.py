"""Compiled inner loops: plain functions over arrays, compiled by numba on first use.

Its modules import numba, so the library imports them inside functions. Every kernel has a
naive version in ``tests/reference.py`` or a formula in the tests. A kernel works on a range of
rows, so that each helper thread (`crew`) can take some. Sums over rows are divided into pieces
that depend on the shape alone and are added in order. There is one variant of each kernel, so the
number of threads changes no digit.

Three rules keep kernels fast. Loops over neighbouring rows or columns are the innermost ones, so
that LLVM can use vectors. Such a loop adds to `_atomics.registers`, because LLVM can prove that
these do not overlap other arrays. Small functions with `_options.HELPER` are inlined. They are
compiled alone first, so each function that needs wide vectors must request them.

The first fit compiles its kernels in some seconds and caches them. To keep that time short,
pass whole numbers as arguments instead of literals (numba compiles a function again for a literal),
and avoid assignments to slices.
"""
