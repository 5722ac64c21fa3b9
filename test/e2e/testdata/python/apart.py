"""Asks a namenode of an older release for what only a newer one has."""

import sys

import leasefs

with leasefs.connect(sys.argv[1]) as fs:
    try:
        fs.snapshots.allow("/")
    except leasefs.UnsupportedError as e:
        print(e)
