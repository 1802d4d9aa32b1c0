/* Flow control of the nvlink mode (docs/nvlink.md, "Why a region may be written again"), for a model checker.
 *
 * RANKS ranks make EPOCHS calls, two blocks each. Memory is sequentially consistent here: this is about reuse, that no
 * region is written while somebody may still read it and that nobody waits for ever; ordering is for litmus tests and
 * ThreadSanitizer. Every interleaving is every delay: of blocks at entry, of flags, of whole ranks.
 *
 * Block 0 of a rank stores headers and waits for them; block 1 also moves rows. In each epoch a source has rows for
 * all destinations or none, whichever. A region is 0 while it is being written and the epoch afterwards; a
 * reader looks twice. A header is a line: its tag and its value change together, and a waiter wants its own epoch, so
 * that one that was overwritten too early is waited for in vain, which spin reports.
 *
 * What must break the model (tests/model/check.sh builds each):
 *   NO_COMBINE_HEADER        combine does not wait for the headers of all ranks
 *   SILENT_WITHOUT_TOKENS    a rank without tokens for a destination does not signal it in combine
 *   EARLY_LAUNCH             a block enters the next kernel before its rank's other block has left the last one
 * What must not: SPLIT, where send and receive are kernels of their own.
 */
#ifndef RANKS
#define RANKS 3
#endif
#ifndef EPOCHS
#define EPOCHS 2
#endif
/* Ranks below this may be without tokens, epoch by epoch. */
#ifndef FIRST_WITH_TOKENS
#define FIRST_WITH_TOKENS RANKS
#endif
#define BLOCKS 2
#define AT(holder, from) ((holder) * RANKS + (from))

/* Symmetric memory: [holder][from]. */
byte dispatch_tag[RANKS * RANKS];
bit dispatch_has_rows[RANKS * RANKS];
byte dispatch_row[RANKS * RANKS];
byte combine_tag[RANKS * RANKS];
byte combine_row[RANKS * RANKS];

/* Flags: the epoch that a row's flag announces. (A flag is stored behind its row; that it is seen behind it too is
 * ordering, which is not asked here, so the two are one step.) */
byte dispatch_flag[RANKS * RANKS];
byte combine_flag[RANKS * RANKS];

/* Private memory. */
bit has_tokens[RANKS];            /* in this epoch */
bit received_rows[RANKS * RANKS]; /* [rank][source]: the copy that combine goes by */
byte blocks_left[RANKS];                 /* blocks that have left the rank's kernels so far */

/* The other ranks, from the next on. Two statements that touch nothing shared are one step with what follows. */
#define PEER(n) ((r + (n)) % RANKS)
#if RANKS == 2
#define FOR_EACH_PEER(action) action(PEER(1))
#else
#define FOR_EACH_PEER(action) action(PEER(1)); action(PEER(2))
#endif

/* Stream order: a kernel begins when both blocks have left the one before. */
inline next_kernel() {
  atomic { blocks_left[r]++; kernel++ };
#ifndef EARLY_LAUNCH
  (blocks_left[r] >= kernel * BLOCKS)
#endif
}

inline store_dispatch_header(d) {
  atomic { dispatch_has_rows[AT(d, r)] = has_tokens[r]; dispatch_tag[AT(d, r)] = epoch }
}

inline send_row(row, flag) {
  row = 0;
  atomic { row = epoch; flag = epoch }
}

inline receive_row(row, flag) {
  atomic { flag >= epoch -> assert(row == epoch) };
  assert(row == epoch)
}

inline send_dispatch_row(d) { send_row(dispatch_row[AT(d, r)], dispatch_flag[AT(d, r)]) }
inline receive_partial(d) { receive_row(combine_row[AT(r, d)], combine_flag[AT(r, d)]) }

inline receive_dispatch_header(d) {
  if
  :: moves_rows ->
     atomic { dispatch_tag[AT(r, d)] == epoch -> received_rows[AT(r, d)] = dispatch_has_rows[AT(r, d)] }
  :: else -> (dispatch_tag[AT(r, d)] == epoch)
  fi
}

inline receive_dispatch_row(d) {
  if
  :: received_rows[AT(r, d)] -> receive_row(dispatch_row[AT(r, d)], dispatch_flag[AT(r, d)])
  :: else -> skip
  fi
}

inline store_combine_header(d) {
#ifdef SILENT_WITHOUT_TOKENS
  if
  :: received_rows[AT(r, d)] -> combine_tag[AT(d, r)] = epoch
  :: else -> skip
  fi
#else
  combine_tag[AT(d, r)] = epoch
#endif
}

inline send_partial(d) {
  if
  :: received_rows[AT(r, d)] ->
     send_row(combine_row[AT(d, r)], combine_flag[AT(d, r)])
  :: else -> skip
  fi
}

inline receive_combine_header(d) {
#if defined(NO_COMBINE_HEADER)
  skip
#elif defined(SILENT_WITHOUT_TOKENS)
  if
  :: has_tokens[r] -> (combine_tag[AT(r, d)] == epoch)
  :: else -> skip
  fi
#else
  (combine_tag[AT(r, d)] == epoch)
#endif
}

proctype block(byte r; bit moves_rows) {
  byte epoch = 1;
  byte kernel = 0;
  do
  :: epoch <= EPOCHS ->
     /* dispatch.send. Both blocks read the same ids: which tokens there are is settled before the kernel. */
     if
     :: !moves_rows && r < FIRST_WITH_TOKENS -> has_tokens[r] = 0
     :: !moves_rows -> has_tokens[r] = 1
     :: moves_rows -> skip
     fi;
     next_kernel();
     if
     :: !moves_rows -> FOR_EACH_PEER(store_dispatch_header)
     :: moves_rows && has_tokens[r] ->
        FOR_EACH_PEER(send_dispatch_row)
     :: else -> skip
     fi;
#ifdef SPLIT
     next_kernel();
#endif
     /* dispatch.receive */
     FOR_EACH_PEER(receive_dispatch_header);
     if
     :: moves_rows -> FOR_EACH_PEER(receive_dispatch_row)
     :: else -> skip
     fi;
     next_kernel();
     /* combine.send */
     if
     :: !moves_rows -> FOR_EACH_PEER(store_combine_header)
     :: else -> FOR_EACH_PEER(send_partial)
     fi;
#ifdef SPLIT
     next_kernel();
#endif
     /* combine.receive */
     if
     :: !moves_rows -> FOR_EACH_PEER(receive_combine_header)
     :: moves_rows && has_tokens[r] ->
        FOR_EACH_PEER(receive_partial)
     :: else -> skip
     fi;
     next_kernel();
     epoch++
  :: else -> break
  od
}

init {
  byte r = 0;
  atomic {
    do
    :: r < RANKS ->
       run block(r, 0);
       run block(r, 1);
       r++
    :: else -> break
    od
  }
}
