// Turns the kernels of a step into one kernel, whose blocks stay until the step has ended and take up one launch after
// the other.
//
// Each body is the kernel's own code, so a step has the bits that it has in separate launches. What launches gave it is
// made here:
// - A chunk's number, which was that of the block. A block takes the chunks block, block + blocks, ...
// - The block's threads. The kernel has as many as the body with the most. Of a body with fewer, the first warps run,
//   and meet at a barrier of their own.
// - Shared memory that nobody else uses. A barrier, and the end of all asynchronous copies, separate two chunks.
// - Order. Each instruction has a counter in memory, to which a block adds the chunks that it has finished. Before its
//   first chunk of an instruction, a block waits until the counters of the instructions that this one depends on
//   (Schedule/Dependencies.h) have reached their numbers of chunks. What those depended on has finished then, too,
//   since the blocks that ran their chunks waited in the same way, and each has at least one. A block that has no
//   chunks of an instruction goes on without waiting.
// - No deadlock. An instruction waits for earlier ones only, and a block takes them in order. So of those that have not
//   finished, the first waits for none, and no block that has chunks of it is held up before it.
//
// Before a block waits, it has the L2 cache fetch its part of a weight that a later instruction reads: a step reads
// all weights once, and the few blocks of a product would wait for each part of its weight that comes from memory. In
// the same way, the blocks that have no chunk of an instruction have it fetch the keys and values that the next one
// attends to. Those of the step's own tokens may be fetched before they are written: all blocks write to the L2 cache
// and, once they have acquired, read from it, so that what it has fetched early is never stale.
//
// One thread adds to the counters for its block, and a few poll them; barriers order the block's other threads with
// these. The block's writes come before the barrier, and that before the addition, which releases. In another block,
// the loads that acquire come before a barrier, and that before the block's reads. Acquiring also invalidates the first
// cache of the multiprocessor, which may hold old contents of rows that other blocks write.
#include "Persistent.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/IRMapping.h"

using namespace mlir;

namespace xfc::gpu {
namespace {

class Persistent {
public:
  Persistent(KernelBuilder &k, ArrayRef<KernelBody> bodies, ModuleOp code) : k(k), bodies(bodies), code(code) {}
  KernelInfo emit();

private:
  // The instruction number i (i64), and its fields.
  Value instruction(Value i);
  Value callOf(Value instruction) { return k.field(instruction, offsetof(xfc_instruction, call), k.i64); }
  Value bodyOf(Value instruction) { return k.field(instruction, offsetof(xfc_instruction, body), k.i32); }
  Value chunksOf(Value instruction) { return k.field(instruction, offsetof(xfc_instruction, chunks), k.i32); }
  View counter(Value i);
  Value leads() { return k.equal(k.thread(), 0); }

  void run(Value i);
  void fetchAhead(Value instruction);
  void fetchListed(Value i, Value chunks);
  void fetchListed(Value call, ArrayRef<ListedRows> listed, Value chunks);
  void wait(Value instruction);
  Value runChunks(Value instruction, Value chunks);
  void runBody(const KernelBody &body, Value call, Value chunk);
  void leave();

  KernelBuilder &k;
  ArrayRef<KernelBody> bodies;
  ModuleOp code;
  Value count, first, finished; // of xfc_step
  Value block, blocks;          // the block's number, and how many there are (i32)
};

KernelInfo Persistent::emit() {
  int64_t scratch = 0;
  k.threads = 0;
  for (const KernelBody &body : bodies) {
    k.threads = std::max(k.threads, body.threads);
    scratch = std::max(scratch, body.scratch);
  }
  // As many as there are: ptxas would spill to fit a second block on a multiprocessor, where only one is launched.
  constexpr int64_t most = 255, all = 65536;
  k.registers = std::min(most, all / k.threads / 8 * 8);
  if (scratch > 0)
    k.shared(scratch);
  count = k.field(k.call, offsetof(xfc_step, count), k.i64);
  first = k.field(k.call, offsetof(xfc_step, instructions), k.ptr);
  finished = k.field(k.call, offsetof(xfc_step, finished), k.ptr);
  block = k.truncated(k.chunk);
  blocks = k.blocks();
  k.loop(0, count, 1, [&](Value i) { run(i); });
  k.when(leads(), [&] { leave(); });
  return {};
}

Value Persistent::instruction(Value i) {
  const View bytes = k.at(first, k.b.getI8Type());
  return (bytes + k.mul(i, static_cast<int64_t>(sizeof(xfc_instruction)))).data;
}

View Persistent::counter(Value i) { return k.at(finished, k.i32) + i; }

// Runs the block's chunks of instruction i, if it has any.
void Persistent::run(Value i) {
  Value own = instruction(i), chunks = chunksOf(own);
  fetchAhead(own);
  k.when(
      k.less(block, chunks),
      [&] {
        wait(own);
        Value done = runChunks(own, chunks);
        k.when(leads(), [&] { k.ptx("red.release.gpu.global.add.u32 [$0], $1;", {counter(i).data, done}, {}); });
      },
      [&] { fetchListed(i, chunks); });
}

// Has the L2 cache fetch the weight that the instruction names, of which each thread takes every n-th line.
void Persistent::fetchAhead(Value instruction) {
  constexpr int64_t line = 128;
  Value bytes = k.field(instruction, offsetof(xfc_instruction, weight_bytes), k.i64);
  k.when(k.less(0, bytes), [&] {
    Value buffer = k.field(instruction, offsetof(xfc_instruction, weight), k.ptr);
    const View weight = k.at(k.field(buffer, 0, k.ptr), k.b.getI8Type());
    Value before = k.mul(k.chunk, k.threads), thread = k.add(before, k.i64Of(k.thread())), first = k.mul(thread, line),
          together = k.mul(k.i64Of(blocks), k.threads * line);
    auto loop = scf::ForOp::create(k.b, first, bytes, together);
    OpBuilder::InsertionGuard guard(k.b);
    k.b.setInsertionPointToStart(loop.getBody());
    k.ptx("prefetch.global.L2 [$0];", {(weight + loop.getInductionVar()).data}, {});
  });
}

// Has the L2 cache fetch the rows that the instruction after i reads by its lists of keys, where the block has none of
// the `chunks` of i: the others have more urgent work, and many do not yet come to i.
void Persistent::fetchListed(Value i, Value chunks) {
  Value next = k.add(i, 1);
  k.when(k.less(next, count), [&] {
    Value own = instruction(next), body = bodyOf(own), call = k.field(own, offsetof(xfc_instruction, call), k.ptr);
    for (auto [number, candidate] : llvm::enumerate(bodies))
      if (!candidate.listed.empty())
        k.when(k.equal(body, static_cast<int64_t>(number)), [&] { fetchListed(call, candidate.listed, chunks); });
  });
}

// A block without a chunk takes every n-th sequence, a warp every n-th key of its list, and a lane every n-th line of
// the key's rows. The last blocks come first: of most instructions they have no chunk, so that they come here early. If
// there are more keys than `most` bytes have room for, others of the cache would be displaced before they are read.
void Persistent::fetchListed(Value call, ArrayRef<ListedRows> listed, Value chunks) {
  constexpr int64_t line = 128, most = 16 << 20; // of 40 MB of an A100's cache, or 50 of an H100's
  Value sequences = k.field(k.field(call, offsetof(xfc_call, rows), k.ptr), offsetof(xfc_rows, sequences), k.i64),
        keys = k.field(call, offsetof(xfc_call, keys), k.ptr),
        buffers = k.field(call, offsetof(xfc_call, buffers), k.ptr),
        strides = k.field(call, offsetof(xfc_call, strides), k.ptr);
  const View list = k.numbers(keys, offsetof(xfc_keys, keys)), begins = k.numbers(keys, offsetof(xfc_keys, begin)),
             counts = k.numbers(keys, offsetof(xfc_keys, count));
  int64_t together = 0; // bytes of a key and its value
  SmallVector<View> rows;
  for (const ListedRows &own : listed) {
    together += own.bytes;
    Value apart = k.field(strides, own.operand * sizeof(int64_t), k.i64);
    const View all = k.at(k.field(buffers, own.operand * sizeof(void *), k.ptr), k.b.getI8Type());
    rows.push_back(all.inRows(k.mul(apart, own.elementBytes)));
  }
  Value thread = k.ptx("mov.u32 $0, %tid.x;", {}, {k.i32})[0], lane = k.bitAnd(thread, KernelBuilder::warpSize - 1),
        warp = k.i64Of(k.shiftRight(thread, 5)), offset = k.i64Of(k.mul(lane, line)), some = k.max(sequences, 1),
        room = k.div(k.index(most / together), some), first = k.i64Of(k.sub(k.sub(blocks, 1), block)),
        idle = k.i64Of(k.sub(blocks, chunks));
  auto each = scf::ForOp::create(k.b, first, sequences, idle);
  OpBuilder::InsertionGuard guard(k.b);
  k.b.setInsertionPointToStart(each.getBody());
  Value sequence = each.getInductionVar(), begin = k.loadIndex(begins + sequence);
  k.loop(warp, k.min(k.loadIndex(counts + sequence), room), k.warps(), [&](Value key) {
    Value row = k.loadIndex(list + k.add(begin, key));
    for (auto [own, all] : llvm::zip_equal(listed, rows))
      for (int64_t at = 0; at < own.bytes; at += KernelBuilder::warpSize * line) {
        Value byte = k.add(offset, at), isThere = k.less(byte, own.bytes);
        k.ptx("@$0 prefetch.global.L2 [$1];", {isThere, (all.row(row) + byte).data}, {});
      }
  });
}

// Waits until all instructions that this one depends on have finished. Each thread polls the counter of another one.
void Persistent::wait(Value instruction) {
  Value waits = k.field(instruction, offsetof(xfc_instruction, wait_count), k.i64);
  k.when(k.less(0, waits), [&] {
    const View list = k.at(k.field(instruction, offsetof(xfc_instruction, waits), k.ptr), k.b.getI8Type());
    {
      Value thread = k.i64Of(k.thread()), step = k.index(k.threads);
      auto loop = scf::ForOp::create(k.b, thread, waits, step);
      OpBuilder::InsertionGuard guard(k.b);
      k.b.setInsertionPointToStart(loop.getBody());
      Value own = (list + k.mul(loop.getInductionVar(), static_cast<int64_t>(sizeof(xfc_wait)))).data,
            number = k.field(own, offsetof(xfc_wait, instruction), k.i32),
            chunks = k.field(own, offsetof(xfc_wait, chunks), k.i32);
      k.ptx("{ .reg .pred all; .reg .b32 some; again: ld.acquire.gpu.global.u32 some, [$0]; setp.eq.u32 all, some, $1; "
            "@!all bra again; }",
            {counter(k.i64Of(number)).data, chunks}, {});
    }
    k.barrier();
  });
}

// Returns how many chunks the block has run.
Value Persistent::runChunks(Value instruction, Value chunks) {
  Value call = callOf(instruction), body = bodyOf(instruction), none = k.i32Of(0);
  auto loop = scf::ForOp::create(k.b, block, chunks, blocks, none);
  OpBuilder::InsertionGuard guard(k.b);
  k.b.setInsertionPointToStart(loop.getBody());
  Value chunk = loop.getInductionVar(), number = arith::IndexCastOp::create(k.b, k.b.getIndexType(), body);
  SmallVector<int64_t> numbers;
  for (size_t i = 0; i < bodies.size(); ++i)
    numbers.push_back(static_cast<int64_t>(i));
  auto which = scf::IndexSwitchOp::create(k.b, TypeRange(), number, numbers, static_cast<int>(bodies.size()));
  for (auto [region, own] : llvm::zip_equal(which.getCaseRegions(), bodies)) {
    k.b.setInsertionPointToStart(&region.emplaceBlock());
    k.when(k.less(k.thread(), own.threads), [&] { runBody(own, call, chunk); });
    scf::YieldOp::create(k.b);
  }
  k.b.setInsertionPointToStart(&which.getDefaultRegion().emplaceBlock());
  scf::YieldOp::create(k.b);
  k.b.setInsertionPointToEnd(loop.getBody());
  k.ptx("cp.async.wait_all;", {}, {});
  k.barrier();
  Value done = k.add(loop.getRegionIterArg(0), 1);
  scf::YieldOp::create(k.b, done);
  return loop.getResult(0);
}

// Copies the code of a body. The thread's index is read anew in code that stays where it is: otherwise all that follows
// from it would be computed before the first instruction, for all bodies, and take registers until the end.
void Persistent::runBody(const KernelBody &body, Value call, Value chunk) {
  auto function = code.lookupSymbol<LLVM::LLVMFuncOp>(body.kernel);
  Value thread = k.ptx("mov.u32 $0, %tid.x;", {}, {k.i32})[0];
  IRMapping copies;
  copies.map(function.getArgument(0), call);
  SmallVector<Operation *> replaced;
  for (Operation &op : function.getBody().front().without_terminator())
    k.b.clone(op, copies)->walk([&](Operation *copy) {
      if (isa<NVVM::ThreadIdXOp, NVVM::BlockIdXOp>(copy) || (isa<NVVM::Barrier0Op>(copy) && body.threads < k.threads))
        replaced.push_back(copy);
    });
  for (Operation *copy : replaced) {
    if (isa<NVVM::Barrier0Op>(copy)) {
      OpBuilder::InsertionGuard guard(k.b);
      k.b.setInsertionPoint(copy);
      k.ptx("bar.sync 1, " + std::to_string(body.threads) + ";", {}, {});
    } else {
      copy->getResult(0).replaceAllUsesWith(isa<NVVM::ThreadIdXOp>(copy) ? thread : chunk);
    }
    copy->erase();
  }
  // Bodies of products differ in little but numbers. Without this line, which differs from body to body, LLVM would
  // merge their common ends, and keep in registers the numbers in which they differ.
  k.ptx("// the end of " + body.kernel.str(), {}, {});
}

// The last block to leave sets all counters to 0: the others have finished their instructions, and wait for none.
void Persistent::leave() {
  Value before = k.ptx("atom.acq_rel.gpu.global.add.u32 $0, [$1], 1;", {counter(count).data}, {k.i32})[0];
  k.when(k.equal(before, k.sub(blocks, 1)), [&] {
    k.loop(0, k.add(count, 1), 1, [&](Value i) { k.ptx("st.global.u32 [$0], 0;", {counter(i).data}, {}); });
  });
}

} // namespace

// Whether an NVVM op means the same in a block that has more warps than the kernel was written for, of which only the
// first ones run it.
static bool isOfItsWarps(Operation *op) {
  return isa<NVVM::ThreadIdXOp, NVVM::BlockIdXOp, NVVM::Barrier0Op, NVVM::SyncWarpOp, NVVM::ShflOp, NVVM::LdMatrixOp,
             NVVM::MmaOp, NVVM::CpAsyncOp, NVVM::CpAsyncCommitGroupOp, NVVM::CpAsyncWaitGroupOp>(op);
}

bool canBeBody(LLVM::LLVMFuncOp kernel) {
  if (!llvm::hasSingleElement(kernel.getBody()) || kernel->hasAttr(NVVM::NVVMDialect::getClusterDimAttrName()))
    return false;
  // With more threads, those of all bodies would have too few registers.
  constexpr int32_t most = 256;
  auto threads = kernel->getAttrOfType<DenseI32ArrayAttr>(NVVM::NVVMDialect::getReqntidAttrName());
  if (!threads || threads[0] > most)
    return false;
  // Barriers, products of four warps, and special registers.
  constexpr StringLiteral depending[] = {"bar", "cluster", "wgmma", "%"};
  auto depends = [&](Operation *op) {
    auto assembly = dyn_cast<LLVM::InlineAsmOp>(op);
    return (isa<NVVM::NVVMDialect>(op->getDialect()) && !isOfItsWarps(op)) ||
           (assembly &&
            llvm::any_of(depending, [&](StringRef word) { return assembly.getAsmString().contains(word); }));
  };
  return !kernel.walk([&](Operation *op) { return depends(op) ? WalkResult::interrupt() : WalkResult::advance(); })
              .wasInterrupted();
}

KernelInfo emitPersistent(KernelBuilder &k, ArrayRef<KernelBody> bodies, ModuleOp code) {
  return Persistent(k, bodies, code).emit();
}

} // namespace xfc::gpu
