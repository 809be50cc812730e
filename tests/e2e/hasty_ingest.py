"""`wakupush`, whose ingest finds out within seconds which node is deaf or mute."""

from wakupush.cli import main
from wakupush.ingest.live import beacons, hearing

beacons.BEACON_SECONDS = 1.0
hearing.SETTLED_SECONDS = 2.0

if __name__ == "__main__":
    main()
