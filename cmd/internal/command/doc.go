// Package command is what the commands of sluice share: settings from flags, environment and a file, hints
// for mistyped words, safe output, and exit codes. Packages cli and server are above it.
package command
