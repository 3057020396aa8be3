# Turns a file of source lines and the output of `translate --n-best N --length-penalty 0 --scores` into a table for
# `train --tsv --tsv-weighting`: a source, a translation, and its share of the probability of all translations of the line.
#
#   awk -f nbest.awk SOURCE NBEST NBEST > TABLE
BEGIN { FS = OFS = "\t" }
FNR == 1 { pass++ }
pass == 1 { source[FNR] = $0 }
pass == 2 {
  if (!($1 in best)) # the first translation of a line is the best
    best[$1] = $3
  sum[$1] += exp($3 - best[$1])
}
pass == 3 { print source[$1], $2, exp($3 - best[$1]) / sum[$1] }
