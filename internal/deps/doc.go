// Package deps holds the test that enforces the import rules of ARCHITECTURE.md.
package deps
