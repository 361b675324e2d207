package atomicfile

import "errors"

// Agents run on Linux only. Windows has the kubectl plugin, which opens no such files.
const noWait = 0

var errNoDevice = errors.New("no such device")
