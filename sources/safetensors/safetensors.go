// Package safetensors parses, validates and encodes safetensors headers. It reads no tensor data and imports only the standard library.
package safetensors
