package Took;
# Every upstream reports each request as a line of JSON in the file LOG, before it answers. A key is the part of the
# request that was read and the idiom that has read it.
use strict;
use warnings;
use Fcntl;
use JSON::PP;

our @paths = map {"/$_/login"} qw(ip body skip query cookie header host);
my $json = JSON::PP->new->utf8->canonical;

sub text {
    my $v = shift;
    $v = $v->[0] if ref $v eq 'ARRAY' && @$v == 1;
    return undef if !defined $v || ref $v;
    return utf8::is_utf8($v) ? $v : do { my $copy = "$v"; utf8::decode($copy); $copy };
}

sub say {
    my ($trial, %idioms) = @_;
    my %took = map { my $k = $_; $k => text(scalar eval { $idioms{$k}->() }) } keys %idioms;
    my $line = $json->encode({upstream => $ENV{NAME}, trial => $trial // '', took => \%took}) . "\n";
    sysopen my $log, $ENV{LOG}, O_WRONLY | O_APPEND or die $!;
    syswrite $log, $line;
    return $line;
}

1;
