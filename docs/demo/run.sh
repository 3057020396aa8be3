#!/usr/bin/env bash
# Goes from a clone of the repository to a translator trained on real data, in numbered stages.
# MINUTES sets how long it trains (default 5), and OUT where its files go (default build/demo).
set -euo pipefail
cd "$(dirname "$0")/../.."
out=${OUT:-build/demo}
minutes=${MINUTES:-5}
start=$SECONDS
stage() { printf '\n[%d/7] %s  (%d:%02d)\n' "$1" "$2" $(((SECONDS - start) / 60)) $(((SECONDS - start) % 60)); }

stage 1 "Install what is missing and build xfc"
.ci/setup.sh -DXFC_BUILD_TESTS=OFF

stage 2 "Make English-French pairs from Debian's own translations"
mkdir -p "$out"
python3 docs/demo/pairs.py "$out"

stage 3 "Train a joint vocabulary of 4,000 pieces"
build/bin/xfc vocab --input "$out/train.en" "$out/train.fr" --size 4000 -o "$out/spm.model"

stage 4 "Compile models/tiny.json"
build/bin/xfc compile models/tiny.json --vocab "$out/spm.model" -o "$out/translator"
ls -lh "$out/translator" | awk '{print $9 ": " $5}'

stage 5 "Train for $minutes minutes"
rm -rf "$out/run"
"$out/translator" train --source "$out/train.en" --target "$out/train.fr" --vocab "$out/spm.model" --out "$out/run" \
  --valid-source "$out/valid.en" --valid-target "$out/valid.fr" \
  --minutes "$minutes" --batch-tokens 1024 --lr 1.5 --warmup 400 --seed 1

stage 6 "Translate the held-out strings"
"$out/translator" translate --model "$out/run" --input "$out/test.en" --output "$out/test.hyp" --beam 5
echo "copy the source:"
"$out/translator" evaluate --hypothesis "$out/test.en" --target "$out/test.fr"
echo "xfc:"
"$out/translator" evaluate --hypothesis "$out/test.hyp" --target "$out/test.fr"
paste "$out/test.hyp" "$out/test.fr" | awk -F'\t' '{ n++; if ($1 == $2) same++ } END { printf "exact match: %.1f %% of %d\n", 100 * same / n, n }'
echo
paste "$out/test.en" "$out/test.hyp" "$out/test.fr" | awk -F'\t' 'NF == 3 && length($1) > 20 && length($1) < 70 && n < 12 { n++; print "  English    " $1 "\n  xfc        " $2 "\n  reference  " $3 "\n" }'

stage 7 "Write the report"
"$out/translator" report "$out/run" -o "$out/report.html"
printf '\nDone in %d:%02d. Open %s in a browser. Next, with your own data:\n\n' $(((SECONDS - start) / 60)) $(((SECONDS - start) % 60)) "$out/report.html"
cat <<'NEXT'
  build/bin/xfc vocab --input my.en my.fr --size 8000 -o spm.model
  build/bin/xfc compile models/small.json --vocab spm.model -o translator
  ./translator train --source my.en --target my.fr --vocab spm.model --out run --minutes 60
  echo "How are you?" | ./translator translate --model run
NEXT
