#!/usr/bin/env python3
"""Makes the fixture of tests/quantize: what another implementation of the narrow types, the package ml_dtypes, gives.

    pip install ml_dtypes && python3 make.py

The formulas are those of docs/low-precision.md, in numpy's float32; roundings to e4m3, e2m1 and e8m0 are ml_dtypes'.
Writes, little-endian:
  e4m3_of_bf16.bin   [65536]     e4m3 of every bf16 bit pattern
  e2m1_of_bf16.bin   [65536]     e2m1 of every bf16 bit pattern, one a byte
  blocks_bf16.bin    [32][512]   random bf16 rows: all magnitudes, blocks of zeros, infinities, NaNs
  blocks_<format>_elements.bin, blocks_<format>_scales.bin
  hashes.txt         format, SHA-256 of the elements, SHA-256 of the scales,
                     of all bf16 patterns, as 128 rows of 512
"""

import hashlib
import pathlib

import ml_dtypes
import numpy as np

HERE = pathlib.Path(__file__).parent
F32 = np.float32
TENSOR_SCALE = F32(0.0625)
BLOCKS = {"fp8": 128, "fp8_pow2": 128, "mxfp8": 32, "mxfp4": 32, "nvfp4": 16}


def e4m3(x):
    """Round to nearest even; saturates, as the library does; NaN is 0x7f."""
    clipped = np.clip(x.astype(F32), F32(-448), F32(448))
    codes = clipped.astype(ml_dtypes.float8_e4m3fn).view(np.uint8)
    return np.where(np.isnan(x), np.uint8(0x7F), codes)


def e2m1(x):
    clipped = np.clip(x.astype(F32), F32(-6), F32(6))
    codes = np.where(np.isnan(x), F32(0), clipped).astype(ml_dtypes.float4_e2m1fn).view(np.uint8) & 0xF
    return np.where(np.isnan(x), np.uint8(0x7), codes)


def e8m0(exponent):
    return np.exp2(exponent.astype(np.float64)).astype(F32).astype(ml_dtypes.float8_e8m0fnu).view(np.uint8)


def floor_log2(x):
    return np.frexp(x.astype(np.float64))[1] - 1


def quantize(rows, name):
    """rows: float32 [n, columns]. Returns elements (uint8, packed) and scales (little-endian bytes), row-major."""
    block = BLOCKS[name]
    n, columns = rows.shape
    x = rows.reshape(n, columns // block, block)
    finite = np.where(np.isfinite(x), np.abs(x), F32(0))
    amax = finite.max(axis=2).astype(F32)
    has_nan = np.isnan(x).any(axis=2)
    if name in ("fp8", "fp8_pow2"):
        a = np.maximum(amax, F32(2.0**-110))
        if name == "fp8":
            scales, factor = (a / F32(448)).astype(F32), (F32(448) / a).astype(F32)
        else:
            exponent = np.ceil(np.log2(a.astype(np.float64) / 448)).astype(int)
            # log2 is rounded: settle it exactly.
            exponent = np.where(448 * np.exp2(exponent - 1.0) >= a, exponent - 1, exponent)
            exponent = np.where(448 * np.exp2(exponent.astype(float)) < a, exponent + 1, exponent)
            scales, factor = np.exp2(exponent.astype(float)).astype(F32), np.exp2(-exponent.astype(float)).astype(F32)
        scale_bytes = scales.astype("<f4").tobytes()
    elif name in ("mxfp8", "mxfp4"):
        largest = 8 if name == "mxfp8" else 2
        exponent = np.where(amax == 0, -127, np.maximum(floor_log2(np.where(amax == 0, F32(1), amax)) - largest, -127))
        factor = np.exp2(-exponent.astype(float)).astype(F32)
        scale_bytes = np.where(has_nan, np.uint8(0xFF), e8m0(exponent)).astype(np.uint8).tobytes()
    else:
        codes = e4m3((amax / (F32(6) * TENSOR_SCALE)).astype(F32))
        scale = (codes.view(ml_dtypes.float8_e4m3fn).astype(F32) * TENSOR_SCALE).astype(F32)
        factor = np.where(scale > 0, F32(1) / np.where(scale > 0, scale, F32(1)), F32(0)).astype(F32)
        scale_bytes = np.where(has_nan, np.uint8(0x7F), codes).astype(np.uint8).tobytes()
    scaled = (x * factor[:, :, None]).astype(F32)
    if name in ("mxfp4", "nvfp4"):
        codes = e2m1(scaled).reshape(-1, 2)
        elements = (codes[:, 0] | codes[:, 1] << 4).astype(np.uint8)
    else:
        elements = e4m3(scaled)
    return elements.tobytes(), scale_bytes


def bf16(bits):
    return (bits.astype(np.uint32) << 16).view(F32)


def main():
    np.seterr(all="ignore")
    patterns = np.arange(65536, dtype=np.uint16)
    (HERE / "e4m3_of_bf16.bin").write_bytes(e4m3(bf16(patterns)).tobytes())
    (HERE / "e2m1_of_bf16.bin").write_bytes(e2m1(bf16(patterns)).astype(np.uint8).tobytes())

    random = np.random.default_rng(20261130)
    bits = random.integers(0, 65536, (32, 512), dtype=np.uint16)  # any bits: mostly huge spreads of magnitude
    normal = random.standard_normal((32, 512)).astype(F32) * np.exp2(random.integers(-20, 20, (32, 1))).astype(F32)
    rows = np.where(np.arange(32)[:, None] % 4 == 0, bits, (normal.view(np.uint32) >> 16).astype(np.uint16))
    rows[1, :128] = 0
    rows[1, 128:144] = 0x8000
    rows[2, 5] = 0x7F80  # infinity
    rows[2, 77] = 0xFF80
    rows[3, 9] = 0x7FC0  # NaN
    rows[5, 100:132] = 0x0001  # the least subnormal
    rows = rows.astype("<u2")
    (HERE / "blocks_bf16.bin").write_bytes(rows.tobytes())
    hashes = []
    for name in BLOCKS:
        elements, scales = quantize(bf16(rows), name)
        (HERE / f"blocks_{name}_elements.bin").write_bytes(elements)
        (HERE / f"blocks_{name}_scales.bin").write_bytes(scales)
        elements, scales = quantize(bf16(patterns).reshape(128, 512), name)
        hashes.append(f"{name} {hashlib.sha256(elements).hexdigest()} {hashlib.sha256(scales).hexdigest()}\n")
    (HERE / "hashes.txt").write_text("".join(hashes))


if __name__ == "__main__":
    main()
