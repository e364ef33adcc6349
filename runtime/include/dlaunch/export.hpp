#pragma once

/// Marks what libdlaunch.so exports; everything else in it is hidden.
#define DLAUNCH_API __attribute__((visibility("default")))
