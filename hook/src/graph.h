/* Memory that graphs allocate and do not free. */
#ifndef GSHARE_GRAPH_H
#define GSHARE_GRAPH_H

#include "symbols.h"

/* Called before memory at an address may be freed, which the nodes of a graph may have allocated. */
void gsh_graph_memory_freeing(CUdeviceptr p);

#endif
