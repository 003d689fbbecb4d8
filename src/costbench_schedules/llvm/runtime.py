"""What instrumented kernels call, in LLVM IR: workspaces, parallel launches, and the trace of touched lines.

Reuse distances are measured at samples over the whole run. For every cache line the time of its last access
is kept, where time is the number of lines touched so far. At a sample, the number of lines with a later last
access than the line's own is its reuse distance, exactly: the distinct lines between two accesses (crop2024,
section 3.2.2, takes ReuseTracker, which samples with a processor's counters). Gaps between samples are drawn
around their mean, so that they do not follow a loop. The work between samples is a store per touched line.

All memory of a kernel is one arena, so that lines are numbered without a table; the stack, which holds small
buffers, has lines of its own in front of it.
"""

from __future__ import annotations

LINE_BYTES = 64
"""Bytes of a cache line in reuse distances; every processor that is described has lines of this size."""
STACK_BYTES = 1 << 18
"""Stack below the kernel's caller that is traced."""
_ABOVE_BYTES = 4096
GLOBALS = (
    "cb.arena",
    "cb.limit",
    "cb.top",
    "cb.most",
    "cb.stack",
    "cb.counts",
    "cb.stride",
    "cb.rows",
    "cb.threads",
    "cb.shadow",
    "cb.clock",
    "cb.next",
    "cb.gaps",
    "cb.samples",
    "cb.taken",
    "cb.room",
    "cb.lost",
)
"""Values that are set before a run or read after it, 64 bits each. Arena: its first address; bytes that may
be used, are in use and were at most. Counters: address of the row that counts, bytes between rows, address of
the row of the first task, number of tasks. Trace: last access by line, lines touched so far, time of the next
sample, addresses of gaps and samples, samples taken and their most, bytes touched outside the arena and the
stack."""
SAMPLE_WORDS = 2
"""Words of a sample: site, then reuse distance, or -1 at the first access to a line."""

RUNTIME = (
    "\n".join(f"@{name} = global i64 0" for name in GLOBALS)
    + f"""
declare ptr @llvm.frameaddress.p0(i32 immarg)
declare i64 @llvm.cttz.i64(i64, i1 immarg)
declare i64 @llvm.ctlz.i64(i64, i1 immarg)
declare i64 @llvm.umax.i64(i64, i64)
declare i64 @llvm.vector.reduce.add.v8i64(<8 x i64>)

define internal void @cb.begin() {{
  %frame = call ptr @llvm.frameaddress.p0(i32 0)
  %high = ptrtoint ptr %frame to i64
  ; The kernel's frame begins where this one does; some bytes above it are part of the window, too.
  %low = sub i64 %high, {STACK_BYTES - _ABOVE_BYTES}
  %aligned = and i64 %low, -{LINE_BYTES}
  store i64 %aligned, ptr @cb.stack
  ret void
}}

define internal ptr @cb.alloc(i32 %kind, i32 %device, i64 %bytes, i32 %code, i32 %bits) {{
  %top = load i64, ptr @cb.top
  %more = add i64 %bytes, {LINE_BYTES - 1}
  %whole = and i64 %more, -{LINE_BYTES}
  %new = add i64 %top, %whole
  %limit = load i64, ptr @cb.limit
  %fits = icmp ule i64 %new, %limit
  br i1 %fits, label %yes, label %no
yes:
  store i64 %new, ptr @cb.top
  %most = load i64, ptr @cb.most
  %higher = call i64 @llvm.umax.i64(i64 %most, i64 %new)
  store i64 %higher, ptr @cb.most
  %arena = load i64, ptr @cb.arena
  %address = add i64 %arena, %top
  %found = inttoptr i64 %address to ptr
  ret ptr %found
no:
  ret ptr null
}}

; Workspaces are freed in the reverse order of their allocation, for they belong to loops.
define internal i32 @cb.free(i32 %kind, i32 %device, ptr %space) {{
  %arena = load i64, ptr @cb.arena
  %address = ptrtoint ptr %space to i64
  %offset = sub i64 %address, %arena
  store i64 %offset, ptr @cb.top
  ret i32 0
}}

define internal i32 @cb.launch(ptr %task, ptr %data, i32 %wanted) {{
entry:
  %environment = alloca {{ ptr, i32 }}
  %threads = load i64, ptr @cb.threads
  %default = trunc i64 %threads to i32
  %is_default = icmp eq i32 %wanted, 0
  %tasks = select i1 %is_default, i32 %default, i32 %wanted
  store ptr null, ptr %environment
  %count_at = getelementptr {{ ptr, i32 }}, ptr %environment, i64 0, i32 1
  store i32 %tasks, ptr %count_at
  %serial = load i64, ptr @cb.counts
  %rows = load i64, ptr @cb.rows
  %stride = load i64, ptr @cb.stride
  br label %loop
loop:
  %number = phi i32 [ 0, %entry ], [ %next, %loop ]
  %worst = phi i32 [ 0, %entry ], [ %either, %loop ]
  %wide = zext i32 %number to i64
  %row = urem i64 %wide, %threads
  %offset = mul i64 %row, %stride
  %counts = add i64 %rows, %offset
  store i64 %counts, ptr @cb.counts
  %status = call i32 %task(i32 %number, ptr %environment, ptr %data)
  %either = or i32 %worst, %status
  %next = add i32 %number, 1
  %more = icmp ult i32 %next, %tasks
  br i1 %more, label %loop, label %done
done:
  store i64 %serial, ptr @cb.counts
  ret i32 %either
}}

define internal void @cb.touch_masked(ptr %base, i64 %mask, i64 %element, i64 %site) {{
  %none = icmp eq i64 %mask, 0
  br i1 %none, label %done, label %some
some:
  %first = call i64 @llvm.cttz.i64(i64 %mask, i1 true)
  %above = call i64 @llvm.ctlz.i64(i64 %mask, i1 true)
  %end = sub i64 64, %above
  %lanes = sub i64 %end, %first
  %skipped = mul i64 %first, %element
  %bytes = mul i64 %lanes, %element
  %start = getelementptr i8, ptr %base, i64 %skipped
  call void @cb.touch(ptr %start, i64 %bytes, i64 %site)
  br label %done
done:
  ret void
}}

define internal void @cb.touch(ptr %pointer, i64 %bytes, i64 %site) {{
entry:
  %none = icmp eq i64 %bytes, 0
  br i1 %none, label %done, label %some
some:
  %address = ptrtoint ptr %pointer to i64
  %arena = load i64, ptr @cb.arena
  %in_arena = sub i64 %address, %arena
  %limit = load i64, ptr @cb.limit
  %is_arena = icmp ult i64 %in_arena, %limit
  %arena_place = add i64 %in_arena, {STACK_BYTES}
  br i1 %is_arena, label %known, label %other
other:
  %stack = load i64, ptr @cb.stack
  %in_stack = sub i64 %address, %stack
  %is_stack = icmp ult i64 %in_stack, {STACK_BYTES}
  br i1 %is_stack, label %known, label %outside
outside:
  %lost = load i64, ptr @cb.lost
  %lost_more = add i64 %lost, %bytes
  store i64 %lost_more, ptr @cb.lost
  br label %done
known:
  %place = phi i64 [ %arena_place, %some ], [ %in_stack, %other ]
  %end = add i64 %place, %bytes
  %last_byte = sub i64 %end, 1
  %first = lshr i64 %place, 6
  %last = lshr i64 %last_byte, 6
  %shadow_address = load i64, ptr @cb.shadow
  %shadow = inttoptr i64 %shadow_address to ptr
  br label %line
line:
  %number = phi i64 [ %first, %known ], [ %following, %counted ]
  %time = load i64, ptr @cb.clock
  %now = add i64 %time, 1
  store i64 %now, ptr @cb.clock
  %at = getelementptr i64, ptr %shadow, i64 %number
  %before = load i64, ptr %at
  store i64 %now, ptr %at
  %next = load i64, ptr @cb.next
  %due = icmp eq i64 %now, %next
  br i1 %due, label %sample, label %counted
sample:
  call void @cb.sample(i64 %before, i64 %site)
  br label %counted
counted:
  %following = add i64 %number, 1
  %more = icmp ule i64 %following, %last
  br i1 %more, label %line, label %done
done:
  ret void
}}

define internal void @cb.sample(i64 %before, i64 %site) noinline {{
entry:
  %shadow_address = load i64, ptr @cb.shadow
  %shadow = inttoptr i64 %shadow_address to ptr
  %most = load i64, ptr @cb.most
  %bytes = add i64 %most, {STACK_BYTES + 8 * LINE_BYTES - 1}
  %groups = lshr i64 %bytes, 9
  %one = insertelement <8 x i64> poison, i64 %before, i64 0
  %all = shufflevector <8 x i64> %one, <8 x i64> poison, <8 x i32> zeroinitializer
  %is_first = icmp eq i64 %before, 0
  br i1 %is_first, label %store, label %group
group:
  %number = phi i64 [ 0, %entry ], [ %following, %group ]
  %sums = phi <8 x i64> [ zeroinitializer, %entry ], [ %added, %group ]
  %at = getelementptr <8 x i64>, ptr %shadow, i64 %number
  %times = load <8 x i64>, ptr %at, align 8
  %later = icmp ugt <8 x i64> %times, %all
  %ones = zext <8 x i1> %later to <8 x i64>
  %added = add <8 x i64> %sums, %ones
  %following = add i64 %number, 1
  %more = icmp ult i64 %following, %groups
  br i1 %more, label %group, label %counted
counted:
  %lines = call i64 @llvm.vector.reduce.add.v8i64(<8 x i64> %added)
  ; The line itself has just been touched.
  %others = sub i64 %lines, 1
  br label %store
store:
  %distance = phi i64 [ -1, %entry ], [ %others, %counted ]
  %taken = load i64, ptr @cb.taken
  %samples_address = load i64, ptr @cb.samples
  %samples = inttoptr i64 %samples_address to ptr
  %word = mul i64 %taken, {SAMPLE_WORDS}
  %site_at = getelementptr i64, ptr %samples, i64 %word
  %distance_at = getelementptr i64, ptr %site_at, i64 1
  store i64 %site, ptr %site_at
  store i64 %distance, ptr %distance_at
  %new = add i64 %taken, 1
  store i64 %new, ptr @cb.taken
  %gaps_address = load i64, ptr @cb.gaps
  %gaps = inttoptr i64 %gaps_address to ptr
  %gap_at = getelementptr i64, ptr %gaps, i64 %new
  %gap = load i64, ptr %gap_at
  %next = load i64, ptr @cb.next
  %sum = add i64 %next, %gap
  %room = load i64, ptr @cb.room
  %is_full = icmp uge i64 %new, %room
  %due = select i1 %is_full, i64 -1, i64 %sum
  store i64 %due, ptr @cb.next
  ret void
}}
"""
)
