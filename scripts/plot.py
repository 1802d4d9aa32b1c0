#!/usr/bin/env python3
"""Draws time and bandwidth over size from the JSON files of all_reduce_perf, moe_perf and put_perf (--json, or scripts/sweep.sh).

  scripts/plot.py [-o FILE] [--text] PATH...     PATH: a JSON file, or a folder of them

With matplotlib a picture (FILE, default sweep.png; the ending chooses the format); without it, or with --text, two plots
of characters on standard output. Exit codes: 0 drawn, 1 nothing to draw or a file that cannot be read, 2 usage.
"""
import argparse
import collections
import json
import math
import pathlib
import sys

Point = collections.namedtuple("Point", "size time_us gbps")


class BadFile(Exception):
    pass


def files_of(paths):
    for path in map(pathlib.Path, paths):
        if path.is_dir():
            yield from sorted(path.glob("*.json"))
        else:
            yield path


def rows_of(path):
    try:
        rows = json.loads(path.read_text())["rows"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadFile(f"{path}: not a result of a perf tool ({type(error).__name__}: {error})") from error
    for row in rows:
        if "tokens" in row:
            name = f"{row['phase']}, {row['model']}, {row['mode']}, {row['ranks']} rank(s)"
            yield name, Point(row["tokens"], row["p50_us"], row["logical_gbps"])
        elif row.get("tool") == "put_perf":
            name = f"put, {row['transport']}, {row['ranks']} ranks on {row['nodes']} node(s)"
            yield name, Point(row["size_bytes"], row["latency_p50_us"], row["bandwidth_gbps"])
        else:
            name = f"{row['algorithm']}, {row['type']}, {row['ranks']} ranks on {row['nodes']} node(s)"
            yield name, Point(row["size_bytes"], row["p50_us"], row["bus_gbps"])


def read(paths):
    """Points by series, ordered by size; of a point that is there twice, the last one read."""
    series = collections.defaultdict(dict)
    for path in files_of(paths):
        for name, point in rows_of(path):
            series[name][point.size] = point
    return {name: [points[size] for size in sorted(points)] for name, points in sorted(series.items())}


def short(number):
    for unit, factor in (("G", 2**30), ("M", 2**20), ("K", 2**10)):
        if number >= factor:
            return f"{number / factor:.4g}{unit}"
    return f"{number:.4g}"


MARKS = "*o+x#@%&=~"
WIDTH, HEIGHT = 64, 16


def text_plot(title, series, value):
    """Both axes are logarithmic; what is zero does not show."""
    points = [(p.size, value(p)) for line in series.values() for p in line if p.size > 0 and value(p) > 0]
    print(f"\n{title}")
    if not points:
        print("  nothing above zero")
        return
    x_low, x_high = (math.log(f(x for x, _ in points)) for f in (min, max))
    y_low, y_high = (math.log(f(y for _, y in points)) for f in (min, max))
    place = lambda at, low, high, cells: round((math.log(at) - low) / (high - low or 1) * (cells - 1))
    canvas = [[" "] * WIDTH for _ in range(HEIGHT)]
    for number, line in enumerate(series.values()):
        for point in line:
            if point.size > 0 and value(point) > 0:
                row = HEIGHT - 1 - place(value(point), y_low, y_high, HEIGHT)
                canvas[row][place(point.size, x_low, x_high, WIDTH)] = MARKS[number % len(MARKS)]
    for number, row in enumerate(canvas):
        label = math.exp(y_high) if number == 0 else math.exp(y_low) if number == HEIGHT - 1 else None
        print(f"{'' if label is None else format(label, '.4g'):>10} |{''.join(row)}".rstrip())
    left, right = short(math.exp(x_low)), short(math.exp(x_high))
    print(" " * 11 + "+" + "-" * WIDTH)
    print(" " * 12 + left + right.rjust(WIDTH - len(left)))


def draw_text(series):
    text_plot("time (us) over size, median", series, lambda p: p.time_us)
    text_plot("bandwidth (GB/s) over size", series, lambda p: p.gbps)
    print()
    for number, (name, line) in enumerate(series.items()):
        print(f"  {MARKS[number % len(MARKS)]} {name}: {len(line)} point(s)")


def draw_picture(pyplot, series, path):
    figure, (times, rates) = pyplot.subplots(1, 2, figsize=(13, 5))
    for name, line in series.items():
        sizes = [p.size for p in line]
        times.plot(sizes, [p.time_us for p in line], marker="o", label=name)
        rates.plot(sizes, [p.gbps for p in line], marker="o", label=name)
    for axes, label in ((times, "median time, us"), (rates, "bandwidth, GB/s")):
        axes.set_xscale("log", base=2)
        axes.set_xlabel("size")
        axes.set_ylabel(label)
        axes.grid(alpha=0.3)
    times.set_yscale("log")
    times.legend(fontsize="small")
    figure.tight_layout()
    figure.savefig(path)
    print(f"drawn: {path}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="+", metavar="PATH")
    parser.add_argument("-o", "--output", default="sweep.png", metavar="FILE")
    parser.add_argument("--text", action="store_true", help="characters, even where matplotlib is")
    arguments = parser.parse_args()
    try:
        series = read(arguments.paths)
    except (BadFile, KeyError) as error:
        print(f"plot.py: {error}", file=sys.stderr)
        return 1
    if not series:
        print(f"plot.py: no rows in {' '.join(arguments.paths)}; expected JSON files of a perf tool", file=sys.stderr)
        return 1
    try:
        if arguments.text:
            raise ImportError
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot
    except ImportError:
        draw_text(series)
    else:
        draw_picture(pyplot, series, arguments.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
