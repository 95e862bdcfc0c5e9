// Package command has the code that the commands of sluice share: settings from flags, environment and a file,
// hints for mistyped words, safe output, and exit codes. Packages cli and server import it.
package command
