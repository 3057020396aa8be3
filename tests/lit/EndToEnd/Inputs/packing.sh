# packing.sh XFC MODEL FOLDER OPTIONS ARGUMENTS...: trains, validating on the way, with and without the passes that decide who
# packs weights, and compares. No clipping: without fuse-optimizer, the gradients' norm is summed up in another order.
set -e
xfc=$1 model=$2 folder=$3 options=$4
shift 4
for passes in "" --no-fuse=fuse-packing --no-fuse=fuse-optimizer; do
  "$xfc" compile "$model" -o "$folder/translator" --set source_vocab=60 --set target_vocab=60 "$@" $passes
  rm -rf "$folder/out"
  "$folder/translator" train --format ids --source "$folder/a" --target "$folder/b" --valid-source "$folder/a" --valid-target "$folder/b" --valid-every 3 \
    --out "$folder/out" --steps 7 --batch-tokens 256 --clip-norm 0 --seed 5 --threads 2 --quiet $options
  if [ -z "$passes" ]; then
    mv "$folder/out/last.safetensors" "$folder/expected"
  else
    cmp "$folder/out/last.safetensors" "$folder/expected"
  fi
done
