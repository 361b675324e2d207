/*
 * Virtual memory management. The physical memory behind a handle lives until the last handle and the last mapping are
 * gone, and the driver may give the handle's number out again before that: so an object of our own carries the charge,
 * and handles and mappings point to it.
 */
#define _GNU_SOURCE
#include "memory.h"

static uint64_t new_object(struct gsh_vgpu *v, uint64_t bytes) {
	static uint64_t objects; /* under the ledger's lock */
	gsh_item_put(&(struct gsh_item){OBJECT, ++objects, v, NULL, bytes, 1, 0});
	return objects;
}

static void put_handle(uint64_t handle, uint64_t object) {
	gsh_item_put(&(struct gsh_item){HANDLE, handle, NULL, NULL, 0, object, 0});
}

/* One more or one less; an object without any is removed and returned in gone, to be paid back after the driver's call. */
static void refer(uint64_t object, int handles, int mappings, struct gsh_item *gone) {
	struct gsh_item *o = gsh_item_find(OBJECT, object);
	if (!o) return;
	o->other += handles;
	o->mappings += mappings;
	if (o->other || o->mappings) return;
	if (gone) *gone = *o;
	gsh_item_remove(o);
}

static void pay_back(const struct gsh_item *gone) {
	if (gone->vgpu) gsh_release(gone->vgpu, gone->bytes);
}

GSH_EXPORT CUresult cuMemCreate(CUmemGenericAllocationHandle *h, size_t bytes, const CUmemAllocationProp *prop,
				unsigned long long flags) {
	NEED(cuMemCreate);
	if (!prop || prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE) return real(h, bytes, prop, flags);
	struct gsh_hold hold;
	if (!gsh_hold_on(&hold, prop->location.id, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult r = real(h, bytes, prop, flags);
	if (r != CUDA_SUCCESS) {
		gsh_release(hold.place.vgpu, bytes);
		return r;
	}
	gsh_ledger_lock();
	put_handle(*h, new_object(hold.place.vgpu, bytes));
	gsh_ledger_unlock();
	return r;
}

/* A handle stands once in the ledger however often it was retained; the object counts. */
GSH_EXPORT CUresult cuMemRelease(CUmemGenericAllocationHandle h) {
	NEED(cuMemRelease);
	struct gsh_item handle = {0}, object = {0}, gone = {0};
	gsh_ledger_lock();
	struct gsh_item *known = gsh_item_find(HANDLE, h);
	if (known) {
		handle = *known;
		object = *gsh_item_find(OBJECT, handle.other);
		if (--known->mappings == UINT64_MAX) gsh_item_remove(known); /* mappings of a HANDLE: times retained */
		refer(handle.other, -1, 0, &gone);
	}
	gsh_ledger_unlock();
	CUresult r = real(h);
	if (r == CUDA_SUCCESS) {
		pay_back(&gone);
	} else if (known) { /* as it was */
		gsh_ledger_lock();
		struct gsh_item *now = gsh_item_find(HANDLE, h);
		if (now) now->mappings++;
		if (!now) gsh_item_put(&handle);
		if (gone.thing) gsh_item_put(&object);
		if (!gone.thing) refer(handle.other, 1, 0, NULL);
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
		gsh_item_put(&(struct gsh_item){MAPPING, p, NULL, NULL, bytes, object, 0});
		refer(object, 0, 1, NULL);
	}
	gsh_ledger_unlock();
	return r;
}

/* Forgets the mapping that begins here; returns where the next one may begin. */
static CUdeviceptr unmap_one(CUdeviceptr p, CUdeviceptr end) {
	struct gsh_item gone = {0};
	gsh_ledger_lock();
	struct gsh_item *m = gsh_item_find(MAPPING, p);
	CUdeviceptr next = m && m->bytes ? p + m->bytes : end;
	if (m) {
		uint64_t object = m->other;
		gsh_item_remove(m);
		refer(object, 0, -1, &gone);
	}
	gsh_ledger_unlock();
	pay_back(&gone);
	return next;
}

/* One call may end several mappings that lie one behind the other. */
GSH_EXPORT CUresult cuMemUnmap(CUdeviceptr p, size_t bytes) {
	NEED(cuMemUnmap);
	CUresult r = real(p, bytes);
	for (CUdeviceptr at = p; r == CUDA_SUCCESS && at < p + bytes;) at = unmap_one(at, p + bytes);
	return r;
}

static void one_more_handle(uint64_t handle, uint64_t object) {
	struct gsh_item *known = gsh_item_find(HANDLE, handle);
	if (known && known->other == object)
		known->mappings++;
	else if (!known)
		put_handle(handle, object);
	refer(object, 1, 0, NULL);
}

static uint64_t object_at(uint64_t address) {
	for (struct gsh_item *i = gsh_item_next(NULL); i; i = gsh_item_next(i))
		if (i->thing == MAPPING && address >= i->key && address - i->key < i->bytes) return i->other;
	return 0;
}

GSH_EXPORT CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *h, void *address) {
	NEED(cuMemRetainAllocationHandle);
	CUresult r = real(h, address);
	if (r != CUDA_SUCCESS) return r;
	gsh_ledger_lock();
	uint64_t object = object_at((uint64_t)address);
	if (object) one_more_handle(*h, object);
	gsh_ledger_unlock();
	return r;
}

/* The exporter pays. An import of our own export may give the handle that we have. */
GSH_EXPORT CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *h, void *os, int type) {
	NEED(cuMemImportFromShareableHandle);
	CUresult r = real(h, os, type);
	if (r != CUDA_SUCCESS) return r;
	gsh_ledger_lock();
	struct gsh_item *known = gsh_item_find(HANDLE, *h);
	if (known)
		one_more_handle(*h, known->other);
	else
		put_handle(*h, new_object(NULL, 0));
	gsh_ledger_unlock();
	return r;
}
