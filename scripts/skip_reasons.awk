# Reads ctest's LastTest.log; prints each reason for skipping with the number of tests that gave it.
# GoogleTest writes the place followed by ": Skipped", then the reason; other tests write "skipped: reason".
/: Skipped$/ { getline; reason = $0; next }
/^skipped: / { reason = substr($0, 10); next }
/^Test Skipped|^Test time =/ { next }
/^<end of output>/ {
  if (reason != "") {
    if (!(reason in count)) order[++kinds] = reason
    count[reason]++
    total++
  }
  reason = ""
}
END {
  if (total > 0) printf "\n%d skipped:\n", total
  for (i = 1; i <= kinds; i++) printf "  %5d  %s\n", count[order[i]], order[i]
}
