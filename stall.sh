# stall.sh LIBRARY SIGNAL
H=/work/h/symbols/build/heaptap; D=$(mktemp -d /tmp/symbols-t/st/d.XXXX); L=$D/libheaptap.so; cp $1 $L
P=/sys/fs/bpf/heaptap-symbols-$$
$H daemon --config /dev/null --state-dir $D/state --socket $D/s --pin-dir $P --library $L >$D/log 2>&1 & DP=$!
for i in $(seq 200); do grep -q recording $D/log && break; sleep 0.1; done
kill -$2 $DP; [ $2 = STOP ] || wait $DP; sleep 1
cd $D; s=$(date +%s.%N); MALLOC_CONF=$3prof_leak:true,lg_prof_sample:0 LD_PRELOAD=$L /work/h/symbols/build/tests/targets/wiki_leak; echo "$2: $(echo "$(date +%s.%N) - $s" | bc) s"
[ $2 = STOP ] && { kill -CONT $DP; kill -TERM $DP; wait $DP; }
$H daemon --config /dev/null --state-dir $D/state --socket $D/s --pin-dir $P --end; rm -rf $D
