/* The whole C interface of libdlaunch: the counterpart of dlaunch.hpp, for C11 and later, for C++
 * programs that want no C++ interface, and for languages that call C.
 *
 *   status.h        dl_status, messages, dl_options, memory
 *   tensor.h        element types, views, reductions
 *   world.h         who am I, where are the others; process information; rank_zero_first
 *   process.h       spawn, ports; what the launcher is told
 *   store.h         the key-value store, and a store of the program's own
 *   communicator.h  communicators, memory for collectives, groups, ending
 *   collectives.h   collectives and their started forms
 *   messages.h      point to point
 *   tree.h          structured values
 *   training.h      gradients
 *
 * Calls return a dl_status; DL_OK is 0. Other results come through pointers, which are written on
 * success only; if such a pointer may be null, the call says so.
 *
 * Handles (dl_world, dl_store, dl_comm, dl_buffer, dl_work, dl_listener, dl_tree, dl_reducer) are
 * made by calls and ended by their dl_..._free, which take null and do nothing then. A null handle
 * anywhere else is DL_MISUSE, never a crash; so are a null pointer with a count and a number that
 * is no enumerator. A handle that was freed may not be used.
 *
 * Structures that may grow begin with `struct_size`, which the caller sets to sizeof of the
 * structure it knows; the macros and functions named dl_make_... do. A program built with this
 * header goes on with later libraries of the same SONAME. Numbers of enumerators never change.
 *
 * Text is NUL-terminated; what is passed in is copied or only read during the call, unless a
 * comment says how long it must live. Flags (`int found`, `int32_t truncate_mean`) are 0 or 1.
 *
 * No call throws, and none lets an exception of a callback through. Callbacks return; leaving one
 * by longjmp or pthread_exit is not supported. */
#pragma once

#include <dlaunch/c/collectives.h>
#include <dlaunch/c/communicator.h>
#include <dlaunch/c/messages.h>
#include <dlaunch/c/process.h>
#include <dlaunch/c/status.h>
#include <dlaunch/c/store.h>
#include <dlaunch/c/tensor.h>
#include <dlaunch/c/training.h>
#include <dlaunch/c/tree.h>
#include <dlaunch/c/world.h>
