"""Small kernels in LLVM IR, written by hand; no test of them needs TVM."""

from __future__ import annotations

FIGURE = """
define void @kernel(ptr %a, ptr %b, ptr %c, ptr %j) {
for.cond7:
  %count = load i32, ptr %j
  %more = icmp slt i32 %count, 8
  br i1 %more, label %for.body9, label %end
for.body9:
  %x = load float, ptr %a
  %y = load float, ptr %b
  %product = fmul float %x, %y
  %old = load float, ptr %c
  %sum = fadd float %product, %old
  store float %sum, ptr %c
  br label %for.inc
for.inc:
  %before = load i32, ptr %j
  %after = add nsw i32 %before, 1
  store i32 %after, ptr %j
  br label %for.cond7
end:
  ret void
}
"""
"""The loop of crop2024, Figure 3: its graphlets are drawn in the paper."""

MATMUL = """
define i32 @kernel(ptr noalias align 64 %left, ptr noalias align 64 %right, ptr noalias align 64 %out) {
entry:
  br label %rows
rows:
  %i = phi i64 [ 0, %entry ], [ %i.next, %rows.end ]
  %row = mul i64 %i, 6
  br label %columns
columns:
  %j = phi i64 [ 0, %rows ], [ %j.next, %columns.end ]
  br label %sum
sum:
  %k = phi i64 [ 0, %columns ], [ %k.next, %sum ]
  %total = phi float [ 0.0, %columns ], [ %total.next, %sum ]
  %l = add i64 %row, %k
  %left.at = getelementptr inbounds float, ptr %left, i64 %l
  %x = load float, ptr %left.at
  %r = mul i64 %k, 40
  %r.at = add i64 %r, %j
  %right.at = getelementptr inbounds float, ptr %right, i64 %r.at
  %y = load float, ptr %right.at
  %total.next = call float @llvm.fmuladd.f32(float %x, float %y, float %total)
  %k.next = add i64 %k, 1
  %k.more = icmp ult i64 %k.next, 6
  br i1 %k.more, label %sum, label %columns.end
columns.end:
  %o = mul i64 %i, 40
  %o.at = add i64 %o, %j
  %out.at = getelementptr inbounds float, ptr %out, i64 %o.at
  store float %total.next, ptr %out.at
  %j.next = add i64 %j, 1
  %j.more = icmp ult i64 %j.next, 40
  br i1 %j.more, label %columns, label %rows.end
rows.end:
  %i.next = add i64 %i, 1
  %i.more = icmp ult i64 %i.next, 5
  br i1 %i.more, label %rows, label %done
done:
  ret i32 0
}
declare float @llvm.fmuladd.f32(float, float, float)
"""
"""Sums of 5 x 6 by 6 x 40 products."""
MATMUL_SIZES = {"left": 5 * 6 * 4, "right": 6 * 40 * 4, "out": 5 * 40 * 4}

MASK = "<8 x i1> <i1 0, i1 1, i1 1, i1 0, i1 1, i1 0, i1 0, i1 0>"
LANES = "<4 x i1> <i1 1, i1 0, i1 1, i1 1>"
VECTORS = f"""
define i32 @kernel(ptr %data, ptr %out) {{
entry:
  %buffer = alloca [64 x float], align 64
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %offset = mul i64 %i, 17
  %at = getelementptr float, ptr %data, i64 %offset
  %some = call <8 x float> @llvm.masked.load.v8f32.p0(ptr %at, {MASK}, <8 x float> zeroinitializer)
  %one = insertelement <4 x ptr> poison, ptr %at, i64 0
  %all = shufflevector <4 x ptr> %one, <4 x ptr> poison, <4 x i32> zeroinitializer
  %places = getelementptr float, <4 x ptr> %all, <4 x i64> <i64 0, i64 40, i64 80, i64 120>
  %far = call <4 x float> @llvm.masked.gather.v4f32.v4p0(<4 x ptr> %places, {LANES}, <4 x float> poison)
  %to = getelementptr <8 x float>, ptr %out, i64 %i
  store <8 x float> %some, ptr %to, align 4
  call void @llvm.memset.p0.i64(ptr %buffer, i8 0, i64 256, i1 false)
  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %buffer, i64 20, i1 false)
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, 9
  br i1 %more, label %loop, label %done
done:
  ret i32 0
}}
declare <8 x float> @llvm.masked.load.v8f32.p0(ptr, <8 x i1>, <8 x float>)
declare <4 x float> @llvm.masked.gather.v4f32.v4p0(<4 x ptr>, <4 x i1>, <4 x float>)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
"""
"""Masked, gathered and bulk accesses, and a buffer on the stack."""
VECTORS_SIZES = {"data": 4096, "out": 4096}

PARALLEL = """
@__TVMBackendParallelLaunch = linkonce dllexport local_unnamed_addr global ptr null, align 8
@__TVMBackendAllocWorkspace = linkonce dllexport local_unnamed_addr global ptr null, align 8
@__TVMBackendFreeWorkspace = linkonce dllexport local_unnamed_addr global ptr null, align 8
define internal fastcc i32 @kernel(i32 %device, ptr %out) {
entry:
  %environment = alloca ptr, align 8
  store ptr %out, ptr %environment, align 8
  %launch = load ptr, ptr @__TVMBackendParallelLaunch, align 8
  %status = call i32 %launch(ptr @task, ptr %environment, i32 0)
  ret i32 %status
}
define internal i32 @task(i32 %number, ptr %team, ptr %data) {
entry:
  %tasks.at = getelementptr i8, ptr %team, i64 8
  %tasks = load i32, ptr %tasks.at, align 4
  %out = load ptr, ptr %data, align 8
  %alloc = load ptr, ptr @__TVMBackendAllocWorkspace, align 8
  %space = call ptr %alloc(i32 1, i32 0, i64 100, i32 2, i32 32)
  %more = add i32 %tasks, 9
  %share = udiv i32 %more, %tasks
  %low = mul i32 %share, %number
  %high.all = add i32 %low, %share
  %fits = icmp ult i32 %high.all, 10
  %high = select i1 %fits, i32 %high.all, i32 10
  %any = icmp ult i32 %low, %high
  br i1 %any, label %loop, label %done
loop:
  %i = phi i32 [ %low, %entry ], [ %next, %loop ]
  %at = getelementptr float, ptr %out, i32 %i
  store float 1.0, ptr %at
  store float 1.0, ptr %space
  %next = add i32 %i, 1
  %again = icmp ult i32 %next, %high
  br i1 %again, label %loop, label %done
done:
  %free = load ptr, ptr @__TVMBackendFreeWorkspace, align 8
  %freed = call i32 %free(i32 1, i32 0, ptr %space)
  ret i32 %freed
}
"""
"""Ten iterations that a launch divides among its tasks, as TVM's kernels do; each task has a workspace."""

ENDLESS = """
define i32 @kernel() {
entry:
  br label %loop
loop:
  call void asm sideeffect "", ""()
  br label %loop
}
"""


def vector_loop(lanes: int, accumulators: int) -> str:
    """Returns a loop of independent chains of multiply-adds of `lanes` floats, 100 iterations."""
    vector = f"<{lanes} x float>"

    def each(line: str) -> str:
        return "\n".join(line.replace("#", str(number)) for number in range(accumulators))

    return f"""
define void @kernel(ptr %out) {{
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
{each(f"  %a# = phi {vector} [ zeroinitializer, %entry ], [ %b#, %loop ]")}
{each(f"  %b# = call {vector} @llvm.fmuladd.v{lanes}f32({vector} %a#, {vector} %a#, {vector} %a#)")}
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, 100
  br i1 %more, label %loop, label %done
done:
{each(f"  store {vector} %b#, ptr %out")}
  ret void
}}
declare {vector} @llvm.fmuladd.v{lanes}f32({vector}, {vector}, {vector})
"""
