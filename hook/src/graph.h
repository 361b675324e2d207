/* Memory that graphs allocate and do not free. */
#ifndef GSHARE_GRAPH_H
#define GSHARE_GRAPH_H

#include "symbols.h"

/* Called before (1) and after (-1) a call that may free memory at an address, which the nodes of a graph may have allocated. */
void gsh_graph_memory_freeing(CUdeviceptr p, int calls);

#endif
