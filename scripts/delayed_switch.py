#!/usr/bin/env python3
"""An Ethernet switch in user space that hands every frame on a little later: what `tc netem delay` does where the kernel
has it.

    delayed_switch.py DELAY_US INTERFACE...

Makes the interfaces (TAP), which the caller then moves to where the hosts are; writes "ready" once they are there, and runs
until it is ended. A frame that an interface has no room for is dropped, as on any network.
"""
import collections
import fcntl
import os
import select
import struct
import sys
import time

TUNSETIFF = 0x400454CA
TAP_WITHOUT_HEADER = 0x0002 | 0x1000
LONGEST_FRAME = 1 << 16


def open_tap(name):
    file = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(file, TUNSETIFF, struct.pack("16sH", name.encode(), TAP_WITHOUT_HEADER))
    return file


def hand_on(frame, source, taps, tap_of_address):
    """To the tap where the frame's destination was last seen; to all others if it is a group or unknown."""
    target = tap_of_address.get(frame[0:6])
    for tap in [target] if target is not None else [tap for tap in taps if tap != source]:
        try:
            os.write(tap, frame)
        except OSError:
            pass  # no room, or the interface is down


def run(delay_s, taps):
    in_flight = collections.deque()  # (when it is due, frame, where it came from): in the order of both
    tap_of_address = {}
    while True:
        timeout = max(in_flight[0][0] - time.monotonic(), 0) if in_flight else None
        for tap in select.select(taps, [], [], timeout)[0]:
            try:
                frame = os.read(tap, LONGEST_FRAME)
            except OSError:
                continue
            tap_of_address[frame[6:12]] = tap
            in_flight.append((time.monotonic() + delay_s, frame, tap))
        while in_flight and in_flight[0][0] <= time.monotonic():
            _, frame, source = in_flight.popleft()
            hand_on(frame, source, taps, tap_of_address)


def main():
    if len(sys.argv) < 3 or not sys.argv[1].isdigit():
        sys.exit(__doc__)
    taps = [open_tap(name) for name in sys.argv[2:]]
    print("ready", flush=True)
    run(int(sys.argv[1]) / 1e6, taps)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        pass
