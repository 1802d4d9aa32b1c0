#!/usr/bin/env python3
"""Predicts the time of a dispatch and its combine over many nodes from what was measured on few.

  scripts/predict.py [options]                what to expect for each number of ranks
  scripts/predict.py --check                  the same model against published tables of other people's machines

A rank's own network card carries, in one direction, one row for each of its tokens and each rank of another node that owns
one of the token's experts. So

  time = inside + puts * time to post one + latency + rows * row bytes / bandwidth

`inside` is what routing, packing and placing take where nothing crosses nodes: the time of --mode nvlink inside a node. Ranks
are equally busy and routing is uniform; what waits for a card that others send to at the same time is not in it.
"""
import argparse
import collections
import json
import math
import pathlib
import sys

Shape = collections.namedtuple("Shape", "experts top_k")
Network = collections.namedtuple("Network", "latency_us put_us gbps")

# DeepSeek-V3, 128 tokens, 8 GPUs to a node, a 400 Gb/s ConnectX-7 each: pplx-garden, as published. Rows leave as fp8 with 56
# scales of 4 bytes and come back as bf16.
PUBLISHED_SHAPE = Shape(experts=256, top_k=8)
PUBLISHED_TOKENS = 128
PUBLISHED_RANKS_PER_NODE = 8
PUBLISHED_ROW_BYTES = {"dispatch": 7168 + 56 * 4, "combine": 2 * 7168}
PUBLISHED_US = {"dispatch": {16: 110, 32: 154, 64: 188}, "combine": {16: 186, 32: 266, 64: 309}}
PUBLISHED_POST_US = {16: 1.9, 32: 4.1, 64: 8.5}  # the proxy's time to post all writes of a call
LARGEST_ERROR = 0.1


def ranks_of_token(num_ranks, shape):
    """How many ranks own an expert of a token, on average, if its experts are any, each as likely."""
    total = 0
    for rank in range(num_ranks):
        others = shape.experts - (shape.experts * (rank + 1) // num_ranks - shape.experts * rank // num_ranks)
        total += 1 - math.prod(max(others - i, 0) / (shape.experts - i) for i in range(shape.top_k))
    return total


def remote_rows(num_ranks, ranks_per_node, tokens, shape):
    """Rows that a rank sends to other nodes in a dispatch, and gets back in its combine."""
    remotes = max(num_ranks - ranks_per_node, 0)
    return tokens * ranks_of_token(num_ranks, shape) * remotes / num_ranks


def time_us(inside_us, network, rows, row_bytes, puts):
    if puts == 0:
        return inside_us
    return inside_us + puts * network.put_us + network.latency_us + rows * row_bytes / (network.gbps * 1e3)


def network_of_put_perf(path):
    """Latency and time per put of the smallest puts, bandwidth of the best size, as put_perf --json has them."""
    rows = json.loads(pathlib.Path(path).read_text())["rows"]
    smallest = min(rows, key=lambda row: row["size_bytes"])
    return Network(smallest["latency_p50_us"], 1 / smallest["million_puts_per_s"],
                   max(row["bandwidth_gbps"] for row in rows))


def solve(matrix, values):
    """Least squares by the normal equations, which for three unknowns is enough."""
    size = len(matrix[0])
    rows = [[sum(a[i] * a[j] for a in matrix) for j in range(size)] + [sum(a[i] * v for a, v in zip(matrix, values))]
            for i in range(size)]
    for i in range(size):
        rows[i] = [x / rows[i][i] for x in rows[i]]
        for j in range(size):
            if j != i:
                rows[j] = [x - rows[j][i] * y for x, y in zip(rows[j], rows[i])]
    return [row[-1] for row in rows]


def fit_published(num_ranks_known):
    """Time inside (with the latency) of either phase, time per put and bandwidth, from the points with so many ranks."""
    first, last = min(num_ranks_known), max(num_ranks_known)
    put_us = (PUBLISHED_POST_US[last] - PUBLISHED_POST_US[first]) / (last - first)
    matrix, values = [], []
    for phase, is_combine in (("dispatch", 0), ("combine", 1)):
        for ranks in num_ranks_known:
            rows = remote_rows(ranks, PUBLISHED_RANKS_PER_NODE, PUBLISHED_TOKENS, PUBLISHED_SHAPE)
            matrix.append([1 - is_combine, is_combine, rows * PUBLISHED_ROW_BYTES[phase] / 1e3])
            values.append(PUBLISHED_US[phase][ranks] - put_us * (ranks - PUBLISHED_RANKS_PER_NODE))
    dispatch_us, combine_us, us_per_kilobyte = solve(matrix, values)
    return {"dispatch": dispatch_us, "combine": combine_us}, Network(0, put_us, 1 / us_per_kilobyte)


def check():
    """Two thirds of the table give the parameters; the model has to find the rest."""
    known = [16, 32]
    inside, network = fit_published(known)
    print(f"# from {' and '.join(map(str, known))} ranks: {inside['dispatch']:.1f} and {inside['combine']:.1f} us inside, "
          f"{network.put_us:.3f} us a put, {network.gbps:.1f} GB/s (the card's rate is 50)")
    print(f"{'ranks':>6} {'phase':>9} {'published us':>13} {'model us':>9} {'error %':>8}")
    worst = 0
    for ranks in PUBLISHED_US["dispatch"]:
        rows = remote_rows(ranks, PUBLISHED_RANKS_PER_NODE, PUBLISHED_TOKENS, PUBLISHED_SHAPE)
        for phase, published in ((phase, PUBLISHED_US[phase][ranks]) for phase in PUBLISHED_US):
            us = time_us(inside[phase], network, rows, PUBLISHED_ROW_BYTES[phase], ranks - PUBLISHED_RANKS_PER_NODE)
            error = us / published - 1
            worst = max(worst, abs(error))
            print(f"{ranks:>6} {phase:>9} {published:>13} {us:>9.1f} {100 * error:>8.1f}"
                  f"{'' if ranks in known else '   predicted'}")
    print(f"# largest error {100 * worst:.1f} %, allowed {100 * LARGEST_ERROR:.0f}")
    return 0 if worst <= LARGEST_ERROR else 1


def numbers(text):
    return [float(word) for word in text.split(",")]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--check", action="store_true", help="compare with the published tables; exit code 1 if off by more than 10 %%")
    add("--puts", metavar="FILE", help="a result of put_perf --json between two nodes, instead of the next three")
    add("--latency", type=float, default=4.0, help="us, one way, of a small put (default 4)")
    add("--put", type=float, default=0.15, help="us to post one (default 0.15)")
    add("--bandwidth", type=float, default=48.0, help="GB/s of a rank's card, one way (default 48)")
    add("--inside", type=numbers, default=[19.1, 22.5], metavar="US,US",
        help="dispatch and combine inside a node, us (default 19.1,22.5: two H200, 128 tokens of DeepSeek-V3)")
    add("--ranks", type=numbers, default=[16, 32, 64, 128, 256], help="default 16,32,64,128,256")
    add("--ranks-per-node", type=int, default=8)
    add("--tokens", type=int, default=128, help="of a rank (default 128)")
    add("--experts", type=int, default=256)
    add("--topk", type=int, default=8)
    add("--row-bytes", type=numbers, default=[14336, 14336], metavar="BYTES,BYTES",
        help="of a row in dispatch and in combine (default 14336,14336: hidden 7168 in bf16)")
    add("--puts-per-rank", type=float, default=1.0, help="chunks of one call to one remote rank (default 1)")
    options = parser.parse_args()
    if options.check:
        return check()
    network = network_of_put_perf(options.puts) if options.puts else Network(options.latency, options.put,
                                                                             options.bandwidth)
    shape = Shape(options.experts, options.topk)
    print(f"# {options.tokens} tokens a rank, {shape.experts} experts, top {shape.top_k}, {options.ranks_per_node} rank(s) "
          f"a node; {network.latency_us:.2f} us one way, {network.put_us:.3f} us a put, {network.gbps:.1f} GB/s")
    print(f"{'ranks':>6} {'remote rows':>12} {'dispatch us':>12} {'combine us':>11} {'of that wire':>13} {'wire':>7}")
    for ranks in map(int, options.ranks):
        rows = remote_rows(ranks, options.ranks_per_node, options.tokens, shape)
        puts = max(ranks - options.ranks_per_node, 0) * options.puts_per_rank
        dispatch, combine = (time_us(inside, network, rows, row_bytes, puts)
                             for inside, row_bytes in zip(options.inside, options.row_bytes))
        wire = [rows * row_bytes / (network.gbps * 1e3) for row_bytes in options.row_bytes]
        print(f"{ranks:>6} {rows:>12.1f} {dispatch:>12.1f} {combine:>11.1f} {wire[0]:>13.1f} {wire[1]:>7.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
