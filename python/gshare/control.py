"""The messages on the control socket between the process of a stage and its head. The first message, to the stage, is the configuration in JSON."""

MAX_BYTES = 128 << 10  # of a message

READY = b"ready"
FAILED = b"failed "  # followed by the reason why the stage could not start
EVICT = b"evict"
EVICTED = b"evicted"
STOP = b"stop"

PEER_LOST = b"lost"  # sent on the connection of an attached stage before it exits: an edge was closed before the pipeline was

PEER_GONE = 3  # exit status of a stage: an edge was closed before the pipeline was
