"""What the process of a stage and the one that has started it say to each other on the control socket. The first message is the configuration."""

MAX_BYTES = 128 << 10  # of a message

READY = b"ready"
FAILED = b"failed "  # and a text: it could not start
EVICT = b"evict"
EVICTED = b"evicted"
STOP = b"stop"

PEER_LOST = b"lost"  # on the connection of a stage that has attached, which then ends: an edge has ended before the pipeline was closed

PEER_GONE = 3  # exit status: an edge has ended before the pipeline was closed
