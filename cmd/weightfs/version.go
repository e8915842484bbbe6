package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version is the module's version, else the commit that was built, else "devel".
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "devel"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value
		}
	}
	return "devel"
}

// versionLine is what version and --version print.
func versionLine() string {
	return fmt.Sprintf("weightfs %s %s %s/%s", version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

func newVersionCommand(u *ui) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Say which weightfs this is",
		Args:  args(0, 0),
		RunE: func(*cobra.Command, []string) error {
			u.printf("%s\n", versionLine())
			return nil
		},
	}
}
