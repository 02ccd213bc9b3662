# SPDX-License-Identifier: Apache-2.0
#
# Litmus tests of the protocols without locks, one program each.

LITMUS := $(patsubst tests/litmus/%.cc,$(BUILD)/litmus/%,$(wildcard tests/litmus/*.cc))

# Relacy is older than C++17, and its headers have warnings.
$(LITMUS): $(BUILD)/litmus/%: tests/litmus/%.cc
	$(say) CXX $@
	@mkdir -p $(@D)
	$(Q)$(CXX) -std=c++17 -O1 $(WARNINGS) -Wno-shadow -I. $(DEPENDENCIES) -o $@ $<

.PHONY: test-litmus
test-litmus: $(LITMUS) ## run litmus tests of the protocols without locks, as the C++ memory model allows them to go
	$(say) TEST "litmus, $(words $(LITMUS)) protocols"
	$(Q)for test in $^; do timeout 60 $$test || { echo "$$test failed"; exit 1; }; done
