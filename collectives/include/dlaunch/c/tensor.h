#pragma once

#include <dlaunch/c/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The element types: one of the DL_... below. The numbers are a contract: the same in C++
 * (dlaunch::DType), in C and on the wire. */
typedef int32_t dl_dtype;
enum {
  DL_U8 = 1,
  DL_I8 = 2,
  DL_I16 = 3,
  DL_U16 = 4,
  DL_I32 = 5,
  DL_U32 = 6,
  DL_I64 = 7,
  DL_U64 = 8,
  DL_F16 = 9,   /* IEEE 754 binary16. */
  DL_BF16 = 10, /* The upper half of an f32. */
  DL_F32 = 11,
  DL_F64 = 12,
  DL_BOOL = 13, /* One byte, 0 or 1. */
  DL_C64 = 14,  /* Two f32: real, imaginary. */
  DL_C128 = 15  /* Two f64. */
};

/* "f32", "bool"... A static string; never null. */
DL_API const char* dl_dtype_text(dl_dtype dtype);
/* Bytes of one element; 0 for a number that is none of the above. */
DL_API size_t dl_dtype_size(dl_dtype dtype);

/* The place of memory: the host, or a device. */
#define DL_HOST 0
#define DL_CUDA(device) ((device) + 1)

/* What a call writes, or reads and writes: a run of `count` elements somewhere in memory. Views
 * never own: what they show must live until the call returns, and for a started call until its
 * dl_work is complete. Null with a count of 0 is fine. */
typedef struct dl_view {
  void* data;
  size_t count; /* Elements, not bytes. */
  /* Elements from one to the next: 1, or 0 for short, is contiguous; n walks a column of a
   * row-major matrix with n columns; negative walks backwards. Anything but 1 is packed into a
   * temporary buffer for the call. */
  ptrdiff_t stride;
  dl_dtype dtype;
  int32_t place; /* DL_HOST, or DL_CUDA(device). */
} dl_view;

/* What a call only reads. */
typedef struct dl_const_view {
  const void* data;
  size_t count;
  ptrdiff_t stride;
  dl_dtype dtype;
  int32_t place;
} dl_const_view;

static inline dl_view dl_make_view(void* data, size_t count, dl_dtype dtype) {
  dl_view view = {data, count, 1, dtype, DL_HOST};
  return view;
}
static inline dl_const_view dl_make_const_view(const void* data, size_t count, dl_dtype dtype) {
  dl_const_view view = {data, count, 1, dtype, DL_HOST};
  return view;
}

#ifndef __cplusplus
/* The element type of a variable; a type without one does not compile (plain char has none: use
 * signed char, unsigned char, int8_t or uint8_t). */
#define DL_DTYPE_OF(value)                                        \
  _Generic((value), _Bool                                         \
           : DL_BOOL, signed char                                 \
           : DL_I8, unsigned char                                 \
           : DL_U8, short                                         \
           : DL_I16, unsigned short                               \
           : DL_U16, int                                          \
           : DL_I32, unsigned int                                 \
           : DL_U32, long                                         \
           : (sizeof(long) == 8 ? DL_I64 : DL_I32), unsigned long \
           : (sizeof(long) == 8 ? DL_U64 : DL_U32), long long     \
           : DL_I64, unsigned long long                           \
           : DL_U64, float                                        \
           : DL_F32, double                                       \
           : DL_F64, float _Complex                               \
           : DL_C64, double _Complex                              \
           : DL_C128)
/* A view of `count` elements from `pointer`, of the type it points to: `DL_VIEW(x, 100)`,
 * `DL_CONST_VIEW(&loss, 1)`. */
#define DL_VIEW(pointer, count) dl_make_view((pointer), (count), DL_DTYPE_OF(*(pointer)))
#define DL_CONST_VIEW(pointer, count) \
  dl_make_const_view((pointer), (count), DL_DTYPE_OF(*(pointer)))
#endif

/* How the ranks' elements become one: one of the DL_... below. The numbers are a contract: the
 * same in C++ (dlaunch::ReduceOp), in C and on the wire. */
typedef int32_t dl_reduce_op;
enum {
  DL_SUM = 1,     /* Integers wrap modulo 2^bits. bool: logical or. */
  DL_PRODUCT = 2, /* Integers wrap. bool: logical and. */
  DL_MIN = 3,     /* A NaN of any rank wins. Not for complex numbers. */
  DL_MAX = 4,     /* The same. */
  DL_MEAN = 5,    /* The sum divided by the number of ranks. Integers: see truncate_mean. */
  DL_BAND = 6,    /* Bitwise and; integers and bool only. */
  DL_BOR = 7,
  DL_BXOR = 8,
  DL_PREMUL_SUM = 9, /* Sum of factor * element; made by dl_op_premul_sum. */
  DL_CUSTOM = 10,    /* The program's own; made by dl_op_custom. */
  DL_LAND = 11, /* Logical and: 1 where every rank's is not 0, else 0; integers and bool only. */
  DL_LOR = 12,
  DL_LXOR = 13 /* 1 where an odd number of ranks' elements are not 0. */
};

/* "sum", "min"... A static string; never null. */
DL_API const char* dl_reduce_op_text(dl_reduce_op op);

/* accumulated[i] = accumulated[i] op next[i] for `count` elements of `dtype`, or of
 * dl_reduction.element_bytes. Called on a thread of the library's choice while a call is under way,
 * one call at a time; must be the same function on all ranks, and makes no call of this library.
 * Neither buffer need be aligned for more than its element type. */
typedef void (*dl_fold)(void* argument, void* accumulated, const void* next, size_t count,
                        dl_dtype dtype);

/* For a dl_fold that cannot go on, before it returns: the call fails here with DL_INTERNAL and
 * `why`, on the other ranks with DL_INTERNAL and a sentence that has it, and the communicator is
 * broken. What is in `accumulated` then does not matter. Does nothing elsewhere. */
DL_API void dl_fold_failed(const char* why);

/* The order in which elements are reduced, as dlaunch/reduction.hpp tells: one of the DL_... below.
 * The same on all ranks, else DL_MISMATCH. */
typedef int32_t dl_reduce_order;
enum {
  DL_ORDER_RANKS = 0,     /* That of the ranks: the result has the same bits on all of them. */
  DL_ORDER_CANONICAL = 1, /* Pairs of ranks, then pairs of pairs: the same however ranks are spread
                           * over nodes, and with less rounding. */
  DL_ORDER_ANY = 2        /* Whichever is fastest for the size and the ranks' places. */
};

/* An operation and what it needs. */
typedef struct dl_reduction {
  dl_reduce_op op;
  dl_reduce_order order;
  double factor;        /* DL_PREMUL_SUM. */
  const char* name;     /* DL_CUSTOM: shows in messages, and is compared between ranks. */
  dl_fold fold;         /* DL_CUSTOM. */
  void* argument;       /* DL_CUSTOM: given to fold; lives until the call is complete. */
  size_t element_bytes; /* DL_CUSTOM: an element of its own, as of a struct; 0: the dtype's. */
} dl_reduction;

/* `dl_all_reduce(comm, x, dl_op(DL_MAX), DL_HERE)`. */
static inline dl_reduction dl_op(dl_reduce_op op) {
  dl_reduction reduction = {op, 0, 1, NULL, NULL, NULL, 0};
  return reduction;
}
/* Each element times `factor`, then summed; in f32 for 16-bit types, and in the element's own type
 * else. The factor is the same on all ranks, else DL_MISMATCH. Floats and complex only. */
static inline dl_reduction dl_op_premul_sum(double factor) {
  dl_reduction reduction = {DL_PREMUL_SUM, 0, factor, NULL, NULL, NULL, 0};
  return reduction;
}
/* The same operation in another order: `dl_canonical(dl_op(DL_SUM))`. */
static inline dl_reduction dl_canonical(dl_reduction reduction) {
  reduction.order = DL_ORDER_CANONICAL;
  return reduction;
}
static inline dl_reduction dl_any_order(dl_reduction reduction) {
  reduction.order = DL_ORDER_ANY;
  return reduction;
}
/* An operation of the program's own. */
static inline dl_reduction dl_op_custom(const char* name, dl_fold fold, void* argument) {
  dl_reduction reduction = {DL_CUSTOM, 0, 1, name, fold, argument, 0};
  return reduction;
}
/* The same of elements of so many bytes: the buffers' dtype only says in what they are counted, and
 * fold's `count` is that of such elements. See Reduction::custom for what is too large. */
static inline dl_reduction dl_op_custom_of(size_t element_bytes, const char* name, dl_fold fold,
                                           void* argument) {
  dl_reduction reduction = {DL_CUSTOM, 0, 1, name, fold, argument, element_bytes};
  return reduction;
}
/* Picks one of structs of a value and an index, {double; int32_t} for DL_F64 and DL_I32: the one of
 * the least, or the greatest, value, and among equal ones the one of the smallest index. The
 * buffers are of bytes, DL_U8. A call refuses what has no order, and an index that is neither
 * DL_I32 nor DL_I64. */
DL_API dl_reduction dl_op_min_located(dl_dtype value, dl_dtype index);
DL_API dl_reduction dl_op_max_located(dl_dtype value, dl_dtype index);

#ifdef __cplusplus
}
#endif
