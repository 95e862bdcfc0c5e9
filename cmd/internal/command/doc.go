// Package command is what the commands of sluice have in common: settings from flags, environment and a
// file, hints for what was mistyped, safe output, and exit codes. The packages cli and server make their
// commands with it; it knows none of them.
package command
