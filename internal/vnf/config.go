package vnf

import (
	"bytes"
	"errors"
	"fmt"
	"os"

	"go.yaml.in/yaml/v3"
)

// Config describes a VNF controller's process.
type Config struct {
	// GlobalSite is where the Global Switchboard runs.
	GlobalSite string `yaml:"globalSite"`
	// Credentials is the file that the site's process wrote for its services:
	// <store>/credentials/service.default.json.
	Credentials string `yaml:"credentials"`
	// BusURL overrides the server's address in the credentials; usually empty.
	BusURL string `yaml:"busUrl"`
}

// LoadConfig reads a configuration file. Its error lists everything that is wrong, with field and fix.
func LoadConfig(path string) (*Config, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	config := &Config{}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	if err := decoder.Decode(config); err != nil {
		return nil, fmt.Errorf("%s: %w; the fields are globalSite, credentials and busUrl", path, err)
	}
	var problems []error
	if config.GlobalSite == "" {
		problems = append(problems, fmt.Errorf("%s: globalSite: empty; give the name of the site where the Global Switchboard runs", path))
	}
	if config.Credentials == "" {
		problems = append(problems, fmt.Errorf("%s: credentials: empty; give <store>/credentials/service.default.json of the site", path))
	}
	return config, errors.Join(problems...)
}
