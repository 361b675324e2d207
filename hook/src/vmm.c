/*
 * The wrappers of virtual memory management. Physical memory exists until its last handle is released and its last mapping
 * removed, and the driver may reuse the handle's number before that. So the ledger has an OBJECT of its own that carries
 * the charge, and handles and mappings refer to it.
 */
#define _GNU_SOURCE
#include "reserve.h"

/* Enters physical memory with one handle and returns its key; the ledger is locked. */
static uint64_t new_object(struct gsh_vgpu *v, uint64_t bytes) {
	static uint64_t objects; /* changed under the ledger's lock */
	gsh_item_put(&(struct gsh_item){OBJECT, ++objects, v, NULL, bytes, 1, 0, false});
	return objects;
}

/* Enters a handle of an object; the ledger is locked. */
static void put_handle(uint64_t handle, uint64_t object) {
	gsh_item_put(&(struct gsh_item){HANDLE, handle, NULL, NULL, 0, object, 0, false});
}

/*
 * Changes an object's numbers of handles and mappings; the ledger is locked. When both are 0 the object is removed and
 * stored in `removed`, whose memory the caller releases after the driver's call.
 */
static void add_refs(uint64_t object, int handles, int mappings, struct gsh_item *removed) {
	struct gsh_item *o = gsh_item_find(OBJECT, object);
	if (!o) return;
	o->other += handles;
	o->mappings += mappings;
	if (o->other || o->mappings) return;
	if (removed) *removed = *o;
	gsh_item_remove(o);
}

/* Releases the memory of a removed object. */
static void release_object(const struct gsh_item *removed) {
	if (removed->vgpu) gsh_memory_release(removed->vgpu, removed->bytes);
}

GSH_EXPORT CUresult cuMemCreate(CUmemGenericAllocationHandle *h, size_t bytes, const CUmemAllocationProp *prop,
				unsigned long long flags) {
	NEED(cuMemCreate);
	if (!prop || prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE) return real(h, bytes, prop, flags);
	struct gsh_reservation hold;
	if (!gsh_reserve_on(&hold, prop->location.id, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult r = real(h, bytes, prop, flags);
	if (r != CUDA_SUCCESS) {
		gsh_memory_release(hold.on.vgpu, bytes);
		return r;
	}
	gsh_ledger_lock();
	put_handle(*h, new_object(hold.on.vgpu, bytes));
	gsh_ledger_unlock();
	return r;
}

/* A handle is in the ledger once however often it was retained; the object counts how often. */
GSH_EXPORT CUresult cuMemRelease(CUmemGenericAllocationHandle h) {
	NEED(cuMemRelease);
	struct gsh_item handle = {0}, object = {0}, removed = {0};
	gsh_ledger_lock();
	struct gsh_item *known = gsh_item_find(HANDLE, h);
	if (known) {
		handle = *known;
		object = *gsh_item_find(OBJECT, handle.other);
		if (--known->mappings == UINT64_MAX) gsh_item_remove(known); /* mappings of a HANDLE: how often it was retained */
		add_refs(handle.other, -1, 0, &removed);
	}
	gsh_ledger_unlock();
	CUresult r = real(h);
	if (r == CUDA_SUCCESS) {
		release_object(&removed);
	} else if (known) { /* put back what was removed */
		gsh_ledger_lock();
		struct gsh_item *now = gsh_item_find(HANDLE, h);
		if (now) now->mappings++;
		if (!now) gsh_item_put(&handle);
		if (removed.kind) gsh_item_put(&object);
		if (!removed.kind) add_refs(handle.other, 1, 0, NULL);
		gsh_ledger_unlock();
	}
	return r;
}

GSH_EXPORT CUresult cuMemMap(CUdeviceptr p, size_t bytes, size_t offset, CUmemGenericAllocationHandle h,
			     unsigned long long flags) {
	NEED(cuMemMap);
	CUresult r = real(p, bytes, offset, h, flags);
	if (r != CUDA_SUCCESS) return r;
	gsh_ledger_lock();
	struct gsh_item *known = gsh_item_find(HANDLE, h);
	uint64_t object = known ? known->other : 0;
	if (object) {
		gsh_item_put(&(struct gsh_item){MAPPING, p, NULL, NULL, bytes, object, 0, false});
		add_refs(object, 0, 1, NULL);
	}
	gsh_ledger_unlock();
	return r;
}

/* Removes the mapping that begins at p from the ledger. Returns where the next one may begin. */
static CUdeviceptr unmap_one(CUdeviceptr p, CUdeviceptr end) {
	struct gsh_item removed = {0};
	gsh_ledger_lock();
	struct gsh_item *m = gsh_item_find(MAPPING, p);
	CUdeviceptr next = m && m->bytes ? p + m->bytes : end;
	if (m) {
		uint64_t object = m->other;
		gsh_item_remove(m);
		add_refs(object, 0, -1, &removed);
	}
	gsh_ledger_unlock();
	release_object(&removed);
	return next;
}

/* One call may remove several adjacent mappings. */
GSH_EXPORT CUresult cuMemUnmap(CUdeviceptr p, size_t bytes) {
	NEED(cuMemUnmap);
	CUresult r = real(p, bytes);
	for (CUdeviceptr at = p; r == CUDA_SUCCESS && at < p + bytes;) at = unmap_one(at, p + bytes);
	return r;
}

/* Counts one more handle of an object; the ledger is locked. */
static void add_handle(uint64_t handle, uint64_t object) {
	struct gsh_item *known = gsh_item_find(HANDLE, handle);
	if (known && known->other == object)
		known->mappings++;
	else if (!known)
		put_handle(handle, object);
	add_refs(object, 1, 0, NULL);
}

/* Returns the object that is mapped at an address, or 0; the ledger is locked. */
static uint64_t object_at(uint64_t address) {
	for (struct gsh_item *i = gsh_item_next(NULL); i; i = gsh_item_next(i))
		if (i->kind == MAPPING && address >= i->key && address - i->key < i->bytes) return i->other;
	return 0;
}

GSH_EXPORT CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *h, void *address) {
	NEED(cuMemRetainAllocationHandle);
	CUresult r = real(h, address);
	if (r != CUDA_SUCCESS) return r;
	gsh_ledger_lock();
	uint64_t object = object_at((uint64_t)address);
	if (object) add_handle(*h, object);
	gsh_ledger_unlock();
	return r;
}

/*
 * An exported handle keeps the memory, also after the last handle and mapping of this process are gone, and nothing says when
 * whoever has it closes it. So it counts as one more handle, to the end of the process.
 */
GSH_EXPORT CUresult cuMemExportToShareableHandle(void *os, CUmemGenericAllocationHandle h, int type, unsigned long long flags) {
	NEED(cuMemExportToShareableHandle);
	CUresult r = real(os, h, type, flags);
	if (r != CUDA_SUCCESS) return r;
	gsh_ledger_lock();
	struct gsh_item *known = gsh_item_find(HANDLE, h);
	struct gsh_item *object = known ? gsh_item_find(OBJECT, known->other) : NULL;
	if (object && !object->exported) {
		object->exported = true;
		add_refs(known->other, 1, 0, NULL);
	}
	gsh_ledger_unlock();
	return r;
}

/* The process that created the memory is charged. Its import of its own export may return the handle that it has already. */
GSH_EXPORT CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *h, void *os, int type) {
	NEED(cuMemImportFromShareableHandle);
	CUresult r = real(h, os, type);
	if (r != CUDA_SUCCESS) return r;
	gsh_ledger_lock();
	struct gsh_item *known = gsh_item_find(HANDLE, *h);
	if (known)
		add_handle(*h, known->other);
	else
		put_handle(*h, new_object(NULL, 0));
	gsh_ledger_unlock();
	return r;
}
