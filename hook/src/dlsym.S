/*
 * The exported dlsym and dlvsym. The C library identifies the caller of RTLD_NEXT by the return address, so for names that
 * are not wrapped the real function is entered by a jump, with stack and arguments as the caller left them. A C wrapper would
 * make the hook the caller, and two interposers in a chain would call each other in a loop.
 *
 * Both version nodes of each function are exported: programs linked before and after glibc 2.34 need different ones.
 */
#if defined(__x86_64__)
#define OLD GLIBC_2.2.5

	.macro entry name, real, third
	.globl gsh_entry_\name
	.type gsh_entry_\name, @function
gsh_entry_\name:
	.cfi_startproc
	endbr64
	push %rdi
	.cfi_adjust_cfa_offset 8
	push %rsi
	.cfi_adjust_cfa_offset 8
	push %rdx
	.cfi_adjust_cfa_offset 8
	.ifeq \third
	xor %edx, %edx
	.endif
	call gsh_route
	mov %rdx, %rcx
	pop %rdx
	.cfi_adjust_cfa_offset -8
	pop %rsi
	.cfi_adjust_cfa_offset -8
	pop %rdi
	.cfi_adjust_cfa_offset -8
	test %rcx, %rcx
	jz 1f
	ret
1:	jmp *\real(%rip)
	.cfi_endproc
	.size gsh_entry_\name, . - gsh_entry_\name
	.endm

#elif defined(__aarch64__)
#define OLD GLIBC_2.17

	.macro entry name, real, third
	.globl gsh_entry_\name
	.type gsh_entry_\name, %function
gsh_entry_\name:
	.cfi_startproc
	hint #34 /* bti c */
	stp x29, x30, [sp, #-48]!
	.cfi_adjust_cfa_offset 48
	.cfi_rel_offset x29, 0
	.cfi_rel_offset x30, 8
	stp x0, x1, [sp, #16]
	str x2, [sp, #32]
	.ifeq \third
	mov x2, xzr
	.endif
	bl gsh_route
	mov x9, x0
	mov x10, x1
	ldp x0, x1, [sp, #16]
	ldr x2, [sp, #32]
	ldp x29, x30, [sp], #48
	.cfi_adjust_cfa_offset -48
	.cfi_restore x29
	.cfi_restore x30
	cbz x10, 1f
	mov x0, x9
	ret
1:	adrp x16, \real
	ldr x16, [x16, #:lo12:\real]
	br x16
	.cfi_endproc
	.size gsh_entry_\name, . - gsh_entry_\name
	.endm
#endif

#define VERSION_(name, alias, node) .symver alias, name@node
#define VERSION(name, alias, node) VERSION_(name, alias, node)

	.text
	.hidden gsh_route
	.hidden gsh_dlsym
	.hidden gsh_dlvsym
	.hidden gsh_entry_dlsym
	.hidden gsh_entry_dlvsym
	entry dlsym, gsh_dlsym, 0
	entry dlvsym, gsh_dlvsym, 1

	.globl dlsym_old
	.globl dlsym_new
	.globl dlvsym_old
	.globl dlvsym_new
	.set dlsym_old, gsh_entry_dlsym
	.set dlsym_new, gsh_entry_dlsym
	.set dlvsym_old, gsh_entry_dlvsym
	.set dlvsym_new, gsh_entry_dlvsym
	.symver dlsym_new, dlsym@@@GLIBC_2.34
	.symver dlvsym_new, dlvsym@@@GLIBC_2.34
	VERSION(dlsym, dlsym_old, OLD)
	VERSION(dlvsym, dlvsym_old, OLD)

	.section .note.GNU-stack, "", %progbits
