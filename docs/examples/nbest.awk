# Turns a file of source lines and the output of `translate --n-best N --length-penalty 0 --scores` into a table for
# `train --tsv --tsv-weighting`: a source, a translation, and its share of the probability of all translations of the line.
# The source lines must be plain text (not compressed) without tabs.
#
#   awk -f nbest.awk SOURCE NBEST NBEST > TABLE
function fail(message) {
  print FILENAME ":" FNR ": " message > "/dev/stderr"
  failed = 1
  exit 1
}
BEGIN { FS = OFS = "\t" }
FNR == 1 { pass++ }
pass == 1 && NF > 1 { fail("holds a tab, which a table cannot hold within a source") }
pass == 1 { source[FNR] = $0 }
pass > 1 && !($1 in source) { fail("belongs to line " $1 ", which the source lacks") }
pass == 2 {
  if (!($1 in best)) # the first translation of a line is the best
    best[$1] = $3
  sum[$1] += exp($3 - best[$1])
}
pass == 3 { print source[$1], $2, exp($3 - best[$1]) / sum[$1] }
END { exit failed }
