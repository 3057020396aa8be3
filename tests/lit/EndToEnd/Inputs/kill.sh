# kill.sh FOLDER/LOG COMMAND...: starts the command and kills it with signal 9 once its log has a line of step 100 or later. On a busy machine
# the command may end before this shell has seen that line; so the command has the lowest priority, and is tried again in an empty folder.
log=$1
shift
for attempt in 1 2 3 4 5; do
  nice -n 19 "$@" &
  pid=$!
  while kill -0 $pid 2>/dev/null; do
    if [ -f "$log" ] && grep -Eq '"step": ?1[0-9][0-9][,}]' "$log"; then
      kill -9 $pid
      break
    fi
  done
  wait $pid
  status=$?
  [ $status -ne 137 ] || exit 0
  [ $status -eq 0 ] || { echo "the command failed with exit status $status"; exit 1; }
  rm -rf "$(dirname "$log")"
done
echo "it ended before it could be killed, $attempt times"
exit 1
