/* The warps of a block that moves rows (kernels/primitives/row_pump.cuh), for a model checker: no stage and no batch is
 * overwritten while somebody may still read it, no parity is taken for another phase's, no flag is raised before its
 * copies, and nobody waits for ever.
 *
 * A row is one chunk. Up to RAW rows at the beginning are to be quantised; each row has a copy or not. The first batch
 * has one row, the others two, so that more rows are under way than there are stages. Bulk copies are made by a process
 * of their own, loads in any order, stores in theirs. A stage holds nothing while it is loaded; who reads looks twice.
 * A barrier is what a wait can tell of it: the parity of the phase that is under way, and arrivals.
 * check.sh has one quantiser. Two that take turns (QUANTIZERS=2, RAW=5, TOTAL=3) hold as well, in 79 million states, which
 * are too many for every run; so nothing here says what comes of it if they forget each other.
 *
 * What must break the model (tests/model/check.sh builds each):
 *   NO_STAGE_SENT    a stage is loaded although senders may still read it
 *   SKIPPING         a sender waits only for chunks that have a copy
 *   FLAG_AT_ONCE     a flag is raised when its batch has been found
 *   UNQUANTIZED      a sender takes a row when it is loaded
 */
#ifndef SENDERS
#define SENDERS 2
#endif
#ifndef QUANTIZERS
#define QUANTIZERS 0
#endif
#ifndef RAW
#define RAW 0
#endif
#ifndef TOTAL
#define TOTAL 4 /* batches, the last not counted */
#endif
#define BATCHES 2
#define ROWS 2
#define STAGES 3
#define DRAIN 1
#define READERS (2 + QUANTIZERS)

/* Batches, in the place that numbers BATCHES apart share. */
byte number_of[BATCHES];
byte num_rows[BATCHES];
bit is_last[BATCHES];
bit has_copy[BATCHES * ROWS];
bit is_raw[BATCHES * ROWS];

/* Stages: the chunk, from 1 on. */
byte holds[STAGES];
byte loading[STAGES];
bit is_quantized[STAGES];

/* Barriers: the parity of the phase under way, and arrivals. */
bit batch_full[BATCHES];
bit batch_sent[BATCHES];
bit batch_empty[BATCHES];
byte batch_sent_count[BATCHES];
byte batch_empty_count[BATCHES];
bit stage_full[STAGES];
bit stage_ready[STAGES];
bit stage_sent[STAGES];
byte stage_sent_count[STAGES];

byte placed;                /* chunks whose bulk stores have been issued */
byte bulk_read;             /* of these, chunks that they have read */
byte copies_left[TOTAL + 1]; /* of each batch, times senders */

#define PARITY_OF(number) (((number) / BATCHES) % 2)
#define AT(number, row) (((number) % BATCHES) * ROWS + (row))
#define WAIT(barrier, parity) (barrier != (parity))
#define ARRIVE(barrier, count, all)                                    \
  count++;                                                             \
  if :: count == all -> count = 0; barrier = 1 - barrier :: else fi
#define NEXT_STAGE                                                     \
  stage++;                                                             \
  if :: stage == STAGES -> stage = 0; parity = 1 - parity :: else fi
#define LEAVE_BATCH ARRIVE(batch_empty[number % BATCHES], batch_empty_count[number % BATCHES], READERS)

proctype finder() {
  byte number, row, raw_left;
  if :: raw_left = 0 :: RAW > 0 -> raw_left = RAW fi;
  do
  :: if :: number >= BATCHES -> WAIT(batch_empty[number % BATCHES], 1 - PARITY_OF(number)) :: else fi;
     atomic {
       number_of[number % BATCHES] = number;
       is_last[number % BATCHES] = (number == TOTAL);
       num_rows[number % BATCHES] = (number < TOTAL -> (number == 0 -> 1 : ROWS) : 0);
       row = 0;
       do
       :: row < num_rows[number % BATCHES] ->
          is_raw[AT(number, row)] = raw_left > 0;
          if :: raw_left > 0 -> raw_left-- :: else fi;
          if
          :: has_copy[AT(number, row)] = 0
          :: has_copy[AT(number, row)] = 1; copies_left[number] = copies_left[number] + SENDERS
          fi;
          row++
       :: else -> break
       od;
       batch_full[number % BATCHES] = 1 - batch_full[number % BATCHES]
     };
     if :: number == TOTAL -> break :: else -> number++ fi
  od
}

/* The copy unit. */
#define LOADED(s) d_step { loading[s] != 0 -> holds[s] = loading[s]; loading[s] = 0; stage_full[s] = 1 - stage_full[s] }
active proctype bulk() {
end:
  do
  :: LOADED(0)
  :: LOADED(1)
  :: LOADED(2)
  :: d_step { bulk_read < placed -> assert(holds[bulk_read % STAGES] == bulk_read + 1); bulk_read++ }
  od
}

/* load_ahead() of row_pump.cuh. */
#define LOAD_AHEAD                                                                                           \
  atomic { do                                                                                                         \
  :: loaded == STAGES + (placed > DRAIN -> placed - DRAIN : 0) -> break                                      \
  :: else ->                                                                                                 \
     if                                                                                                      \
     :: load_row == load_rows ->                                                                             \
        if                                                                                                   \
        :: load_ended || batch_full[load_number % BATCHES] == PARITY_OF(load_number) -> break                \
        :: else -> d_step {                                                                                  \
             assert(number_of[load_number % BATCHES] == load_number);                                        \
             load_ended = is_last[load_number % BATCHES];                                                    \
             load_rows = num_rows[load_number % BATCHES];                                                    \
             load_row = 0;                                                                                   \
             load_number++                                                                                   \
           }                                                                                                 \
        fi                                                                                                   \
     :: else ->                                                                                              \
        if                                                                                                   \
        :: MAY_WAIT && loaded == placed -> WAIT(stage_sent[load_stage], 1 - load_parity)                     \
        :: MAY_WAIT && loaded != placed && stage_sent[load_stage] == 1 - load_parity -> break                \
        :: else                                                                                              \
        fi;                                                                                                  \
        d_step {                                                                                             \
          holds[load_stage] = 0;                                                                             \
          is_quantized[load_stage] = 0;                                                                      \
          loaded++;                                                                                          \
          loading[load_stage] = loaded;                                                                      \
          load_row++;                                                                                        \
          load_stage++;                                                                                      \
          if :: load_stage == STAGES -> load_stage = 0; load_parity = 1 - load_parity :: else fi             \
        }                                                                                                    \
     fi                                                                                                      \
  od }
#ifdef NO_STAGE_SENT
#define MAY_WAIT false
#else
#define MAY_WAIT true
#endif

proctype copier() {
  byte number, row, stage, loaded, load_number, load_row, load_rows, load_stage;
  bit parity, load_parity, load_ended;
  do
  :: atomic {
       WAIT(batch_full[number % BATCHES], PARITY_OF(number));
       assert(number_of[number % BATCHES] == number);
       row = 0;
       if :: is_last[number % BATCHES] -> break :: else fi
     };
     do
     :: row < num_rows[number % BATCHES] ->
        LOAD_AHEAD;
        atomic {
          if
          :: is_raw[AT(number, row)] -> WAIT(stage_ready[stage], parity)
          :: else -> WAIT(stage_full[stage], parity)
          fi;
          assert(holds[stage] == placed + 1);
          assert(is_quantized[stage] == is_raw[AT(number, row)]);
          placed++;
          NEXT_STAGE;
          row++
        };
        bulk_read + DRAIN >= placed;
        LOAD_AHEAD
     :: atomic { row == num_rows[number % BATCHES] -> LEAVE_BATCH; number++ }; break
     od
  od;
  bulk_read == placed
}

proctype teller() {
  byte number;
  do
  :: atomic {
#ifdef FLAG_AT_ONCE
       WAIT(batch_full[number % BATCHES], PARITY_OF(number));
#else
       WAIT(batch_sent[number % BATCHES], PARITY_OF(number));
#endif
       assert(number_of[number % BATCHES] == number);
       assert(copies_left[number] == 0);
       if :: is_last[number % BATCHES] -> break :: else fi;
     }
     atomic { LEAVE_BATCH; number++ }
  od
}

#ifdef UNQUANTIZED
#define COMES_READY(number, row) false
#else
#define COMES_READY(number, row) is_raw[AT(number, row)]
#endif
#ifdef SKIPPING
#define WANTS(number, row) has_copy[AT(number, row)]
#else
#define WANTS(number, row) true
#endif
#define LOOK                                                            \
  d_step {                                                              \
    assert(holds[stage] == chunk);                                      \
    assert(is_quantized[stage] == is_raw[AT(number, row)])              \
  }

/* send_stages() of stage_sender.cuh. */
proctype sender() {
  byte number, row, stage, chunk;
  bit parity, last;
  do
  :: atomic {
       WAIT(batch_full[number % BATCHES], PARITY_OF(number));
       assert(number_of[number % BATCHES] == number);
       last = is_last[number % BATCHES];
       row = 0
     };
     do
     :: row < num_rows[number % BATCHES] ->
        atomic {
          chunk++;
          if
          :: WANTS(number, row) && COMES_READY(number, row) -> WAIT(stage_ready[stage], parity)
          :: WANTS(number, row) && !COMES_READY(number, row) -> WAIT(stage_full[stage], parity)
          :: else
          fi;
          if :: has_copy[AT(number, row)] -> LOOK :: else fi
        };
        atomic {
          if :: has_copy[AT(number, row)] -> LOOK; copies_left[number]-- :: else fi;
          ARRIVE(stage_sent[stage], stage_sent_count[stage], SENDERS);
          NEXT_STAGE;
          row++
        }
     :: atomic {
          row == num_rows[number % BATCHES] ->
          ARRIVE(batch_sent[number % BATCHES], batch_sent_count[number % BATCHES], SENDERS);
          number++
        };
        break
     od;
     if :: last -> break :: else fi
  od
}

#if QUANTIZERS > 0
/* quantize_stages() of stage_quantizer.cuh. */
proctype quantizer(byte own) {
  byte number, row, stage, chunk, turn;
  bit parity;
  do
  :: atomic {
       WAIT(batch_full[number % BATCHES], PARITY_OF(number));
       assert(number_of[number % BATCHES] == number);
       row = 0;
       if :: is_last[number % BATCHES] -> break :: else fi
     };
     do
     :: row < num_rows[number % BATCHES] ->
        chunk++;
        if
        :: is_raw[AT(number, row)] && turn == own ->
           WAIT(stage_ready[stage], 1 - parity);
           atomic { WAIT(stage_full[stage], parity); assert(holds[stage] == chunk && !is_quantized[stage]) };
           atomic {
             assert(holds[stage] == chunk);
             is_quantized[stage] = 1;
             stage_ready[stage] = 1 - stage_ready[stage]
           }
        :: else
        fi;
        atomic {
          turn = (is_raw[AT(number, row)] -> (turn + 1) % QUANTIZERS : turn);
          NEXT_STAGE;
          row++
        }
     :: atomic { row == num_rows[number % BATCHES] -> LEAVE_BATCH; number++ }; break
     od
  od
}
#endif

init {
  atomic {
    run finder();
    run copier();
    run teller();
    run sender();
#if SENDERS > 1
    run sender();
#endif
#if QUANTIZERS > 0
    run quantizer(0);
#endif
#if QUANTIZERS > 1
    run quantizer(1);
#endif
  }
}
