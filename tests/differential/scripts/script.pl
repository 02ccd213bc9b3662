# SPDX-License-Identifier: Apache-2.0
# Perl that allocates in many ways; for the differential test.
use strict; use warnings; use Data::Dumper; $Data::Dumper::Sparseseen = 1; # else keyed by addresses
 use List::Util qw(sum reduce first); use POSIX ();
my %words;
for my $i (1 .. 20000) { $words{"word" . ($i * 7919 % 3001)} .= chr(97 + $i % 26) x ($i % 5); }
print scalar(keys %words), " ", length(join ",", map { "$_=$words{$_}" } sort keys %words), "\n";
sub tree { my $n = shift; return $n ? { left => tree($n - 1), right => tree($n - 1), n => $n } : undef }
sub size { my $t = shift; return $t ? 1 + size($t->{left}) + size($t->{right}) : 0 }
print size(tree(12)), "\n";
my $text = join " ", map { "item$_: " . ($_ * 31 % 97) } 1 .. 3000;
my @found = $text =~ /(\w+): (\d+)/g;
(my $copy = $text) =~ s/(\d+)/sprintf "%x", $1 * 2/ge;
print scalar(@found), " ", length $copy, "\n";
print length(Dumper({ map { $_ => [1 .. $_ % 10] } 1 .. 500 })), "\n";
my @sorted = sort { substr($a, 1) cmp substr($b, 1) || $a cmp $b } map { sprintf "%06d", $_ * 7919 % 100003 } 1 .. 5000;
print "@sorted[0 .. 2]\n";
my $closure = sub { $_[0] };
for my $n (1 .. 80) { my $inner = $closure; $closure = sub { $inner->($_[0] + $n) } }
{ no warnings "recursion"; print $closure->(0), "\n"; }
sub down { my $n = shift; die { level => $n } unless $n; eval { down($n - 1) }; die $@ }
eval { down(50) }; print $@->{level}, "\n";
local $_ = pack("N*", 1 .. 1000); print unpack("%32N*", $_), "\n";
open my $file, "<", \$text; my $lines = () = <$file>; print "$lines\n";
print eval join("+", map { "($_ * 2)" } 1 .. 300), "\n";
printf "%s\n", POSIX::strftime("%Y", gmtime 0);
