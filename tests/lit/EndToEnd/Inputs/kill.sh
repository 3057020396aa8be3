# kill.sh LOG COMMAND...: starts the command and kills it with signal 9 once its log has a line of step 100 or later.
log=$1
shift
"$@" &
pid=$!
while kill -0 $pid 2>/dev/null; do
  if [ -f "$log" ] && grep -Eq '"step": ?1[0-9][0-9][,}]' "$log"; then
    kill -9 $pid
    break
  fi
done
wait $pid
[ $? -eq 137 ] || { echo "it ended before it could be killed"; exit 1; }
