//! Functions of `f64` keep their bounds.

use tilewright_tile::UnaryOp::{self, Cos, Erf, Exp, Exp2, Log, Log2, Rsqrt, Sin, Tanh};

/// A function, the bits of an argument, and the exact value in 180 places (by mpmath) as a sum of two: the bits of the nearest `f64`, and what it
/// lacks. The first six of a function are those with the largest errors of 8,000 arguments.
const EXACT: [(UnaryOp, u64, u64, f64); 99] = [
    (Exp, 0xbfd9_ea18_a8d1_5264, 0x3fe5_5859_4d2e_d763, -3.027e-17),
    (Exp, 0xbfd6_2aa0_2997_8944, 0x3fe6_a1e7_8947_df8d, -2.736e-17),
    (Exp, 0xbfdb_3ec9_f3e3_b0b2, 0x3fe4_e7e5_2b2f_1b41, -3.546e-17),
    (Exp, 0xc034_6ffd_e36d_6b0d, 0x3e16_dd06_4168_1b35, 5.426e-26),
    (Exp, 0xc032_5290_bfc5_5327, 0x3e47_b091_cdea_a6ab, -3.908e-25),
    (Exp, 0xc085_ee5f_bd25_842a, 0x00a6_f6d3_cbb0_54e1, 6.670e-322),
    (Exp, 0xbfdc_5e9e_d407_ee34, 0x3fe4_8ab1_eb23_bd01, -4.330e-17),
    (Exp, 0x4080_1f8c_e6f4_fbbc, 0x6e74_6303_832e_3332, -6.973e+207),
    (Exp, 0xc034_2e69_516e_2fea, 0x3e1d_89f8_65a4_7116, 7.194e-26),
    (Exp, 0x402c_1fcf_1908_ff26, 0x4133_86c8_103e_d98a, -3.499e-11),
    (Exp, 0xbfc6_f0e1_7396_aa44, 0x3fea_bfd4_c29f_ffdb, -1.116e-17),
    (Exp2, 0xc06a_cd65_2f86_82e2, 0x3287_f0d6_f11a_77cf, -8.126e-82),
    (Exp2, 0xc088_d3c9_10d9_bfb9, 0x0e47_0d53_5650_1ab9, 2.521e-256),
    (Exp2, 0xc011_c2db_178e_b7fe, 0x3fa7_9565_cabd_1be7, -1.580e-18),
    (Exp2, 0x3fd9_13fb_aa06_bca4, 0x3ff4_fe3d_177c_5217, -6.960e-17),
    (Exp2, 0x400c_8925_1cfa_aa4e, 0x4027_b3d4_e038_fbbd, -4.040e-16),
    (Exp2, 0xc08f_6b9f_1779_7307, 0x0117_61c2_55a8_ac0d, -7.952e-320),
    (Exp2, 0x4083_605a_1a69_fbd3, 0x66b0_7ed5_689d_f651, 4.690e+170),
    (Exp2, 0xc020_4a61_d36b_baa0, 0x3f6c_ef40_1c00_a0fc, 2.131e-19),
    (Exp2, 0xbfef_00cf_fd84_f156, 0x3fe0_5967_2a29_a09e, 2.180e-17),
    (Exp2, 0x3fc4_6cc0_c806_dfc8, 0x3ff1_df0a_6ee8_f156, 3.116e-17),
    (Exp2, 0x3fc0_b4a4_7698_9ce4, 0x3ff1_83d2_044e_2443, 1.492e-17),
    (Log, 0x4005_ca40_3d19_265e, 0x3ff0_083d_47ed_6b41, 7.987e-17),
    (Log, 0x3ffa_84dd_34f1_33ca, 0x3fe0_2b31_c114_8eab, -4.186e-17),
    (Log, 0x4005_e3d2_109d_4d04, 0x3ff0_1af8_c523_0de3, 8.616e-17),
    (Log, 0x3fe3_3e8c_512a_a8bd, 0xbfe0_45ca_b294_7413, -4.246e-17),
    (Log, 0x3fe3_0609_c9d8_4533, 0xbfe0_a44d_1143_63a1, 4.143e-17),
    (Log, 0x3ffa_62bb_a4b3_46e7, 0x3fe0_01e7_b371_4ef3, -4.633e-17),
    (Log, 0x3ff5_ee31_3689_100a, 0x3fd4_2da8_d264_0867, 2.303e-17),
    (Log, 0x4cdd_0850_c569_b4ce, 0x4061_ec4a_ec0d_4861, 9.108e-15),
    (Log, 0x3949_4438_ee80_450e, 0xc052_6d6e_4fc2_a40b, -3.365e-15),
    (Log, 0x3ff0_365a_1e3b_e33c, 0x3f8a_ff4e_0d1a_8e74, -3.897e-19),
    (Log, 0x4018_91f4_0382_dfa7, 0x3ffd_0b36_0ec3_0221, 2.543e-17),
    (Log2, 0x3fe6_8dc0_9272_59d3, 0xbfe0_268e_477b_f951, -5.064e-17),
    (Log2, 0x4010_0255_9cd0_13d8, 0x4000_01ae_f6aa_260f, -2.217e-16),
    (Log2, 0x3ff0_b739_8c21_ea1c, 0x3fb0_2988_9b0e_6e46, 6.905e-18),
    (Log2, 0x4010_085a_34f9_5aa6, 0x4000_0604_d1df_81f9, -2.181e-16),
    (Log2, 0x2fb7_5216_85c3_efcd, 0xc070_374d_acb2_079f, 2.815e-14),
    (Log2, 0x3ff0_0597_e487_3d0a, 0x3f60_20c0_25c1_6a2a, -2.121e-19),
    (Log2, 0x3ff0_5cfe_8b25_c910, 0x3fa0_952f_f8ee_9de7, -3.104e-18),
    (Log2, 0x2645_6469_0101_4555, 0xc079_a94b_b725_be0c, 2.444e-14),
    (Log2, 0x3ff2_be3d_1a73_bcbe, 0x3fcd_3894_b140_6046, -1.005e-17),
    (Log2, 0x3ffa_56ad_c2b4_89e0, 0x3fe7_02ea_e5a8_203c, -2.087e-17),
    (Log2, 0x1647_23fa_7d99_718e, 0xc084_d3bd_beec_ab68, -9.298e-15),
    (Rsqrt, 0x126c_7535_fb62_293d, 0x56b0_f770_b765_bb8a, 2.024e+93),
    (Rsqrt, 0x6646_5130_603e_9d59, 0x2cc3_28bc_626b_b7fd, 1.285e-109),
    (Rsqrt, 0x5897_0c54_779b_0ba4, 0x339a_a975_206f_3712, 9.991e-77),
    (Rsqrt, 0x5708_d849_ef77_ffd2, 0x3462_288a_0bb2_023c, 9.112e-73),
    (Rsqrt, 0x33ed_b7db_e804_e4ab, 0x45f0_9a57_16ef_9447, 4.777e+12),
    (Rsqrt, 0x2b26_a140_7d42_fce0, 0x4a53_06b9_e539_9106, -3.435e+33),
    (Rsqrt, 0x490b_a249_d4df_afdc, 0x3b61_37b7_20a0_8fd2, 7.079e-39),
    (Rsqrt, 0x280e_927a_7299_5408, 0x4be0_5e8e_8764_6ee0, -2.841e+41),
    (Rsqrt, 0x7266_4143_5c56_11db, 0x26b3_2f96_18ee_d76a, -1.727e-138),
    (Rsqrt, 0x6281_9ec7_5756_11d6, 0x2ea5_8fdf_bb2a_1230, 2.064e-100),
    (Rsqrt, 0x7559_5f02_416d_d6bc, 0x2539_697d_8fc6_0da2, 4.076e-146),
    (Tanh, 0x3e50_5540_a9cd_3460, 0x3e50_5540_a9cd_3460, -1.173e-24),
    (Tanh, 0xbfc9_6c45_624e_8315, 0xbfc9_1805_0051_bbd0, 3.408e-19),
    (Tanh, 0x3fa0_a2a0_f4cd_415a, 0x3fa0_a121_7df5_cbf9, 1.940e-18),
    (Tanh, 0xbfc9_0f50_4c1f_3ae8, 0xbfc8_be95_db40_2572, 3.376e-18),
    (Tanh, 0x3f35_9602_f9c9_3078, 0x3f35_9602_ecb0_7e38, 2.456e-20),
    (Tanh, 0x3fd1_613c_26dc_8e44, 0x3fd0_f6ff_9b00_f618, -1.136e-17),
    (Tanh, 0x3df1_d948_a6c9_16fe, 0x3df1_d948_a6c9_16fe, -5.841e-30),
    (Tanh, 0xbfea_1dfe_da0d_260d, 0xbfe5_8903_6ee6_8a82, 4.790e-17),
    (Tanh, 0xbfef_93d3_3673_afeb, 0xbfe8_3116_fc43_d699, -3.965e-17),
    (Tanh, 0x3fe7_fb01_9d1c_67a1, 0x3fe4_5028_eef1_b71e, -1.984e-17),
    (Tanh, 0xbfd9_2eca_d1a9_cf68, 0xbfd7_f578_2627_d2e9, -4.144e-18),
    (Sin, 0x3fe1_e4fd_92d6_265b, 0x3fe0_f9f1_9e0d_550d, -4.731e-17),
    (Sin, 0xbfe8_c168_8c6c_a787, 0xbfe6_5bee_1e0b_377f, 3.041e-17),
    (Sin, 0x401a_2824_9a38_32b0, 0x3fd0_34e8_51cf_ea66, -2.702e-17),
    (Sin, 0x41c6_79de_1432_3bc4, 0xbfe0_01f7_97c3_026b, 5.540e-17),
    (Sin, 0x41bd_7633_7776_7e5e, 0x3fd0_3136_7b57_0bad, -2.744e-17),
    (Sin, 0x3fe2_cc87_ff74_90ce, 0x3fe1_bc74_338e_ce7a, -5.033e-17),
    (Sin, 0xbfc1_12b3_b802_6547, 0xbfc1_05c0_ed99_bd20, -1.287e-17),
    (Sin, 0x41a6_d2f4_65ed_500d, 0xbe4d_3772_687b_5f7a, -7.508e-25),
    (Sin, 0xbfe3_1714_0c0c_e4df, 0xbfe1_fa50_68dc_2602, -2.275e-17),
    (Sin, 0x3fd3_96d2_e7ac_89c8, 0x3fd3_48e3_2400_4a26, -7.732e-18),
    (Sin, 0xc1be_9cc4_e8d8_d69f, 0x3fdb_c839_d2b1_509e, -4.880e-18),
    (Cos, 0xc1c3_bc32_b377_cefd, 0xbfe2_2cd3_f3dc_ca65, 4.244e-17),
    (Cos, 0x4184_19f0_3056_f66c, 0xbfe2_87f2_3594_3a95, 4.391e-17),
    (Cos, 0x41a9_d950_29ce_ebae, 0x3fe2_2d43_d82b_fcd1, -4.746e-17),
    (Cos, 0xc18e_f2d1_816b_eb1b, 0x3fe0_5cfa_6c59_becb, -5.477e-17),
    (Cos, 0xc1c1_d568_e7e7_214b, 0x3fe1_0198_68a9_adf3, -5.271e-17),
    (Cos, 0x419b_8714_1a8f_ffca, 0x3fe0_24a5_1549_f8f6, 5.510e-17),
    (Cos, 0x41bb_7048_ff8d_584b, 0xbe52_eaa9_84df_63ad, 1.621e-24),
    (Cos, 0x4013_a225_b6a0_7b4d, 0x3fc8_ec22_d196_4bac, -1.011e-17),
    (Cos, 0xc016_05ac_0ec2_86b1, 0x3fe6_cd59_464f_da36, -2.712e-17),
    (Cos, 0x41a1_c529_b0e0_9a01, 0x3fe7_2714_c373_1a4a, 1.761e-17),
    (Cos, 0x41b5_bb28_6c52_0101, 0xbe36_f6de_3f87_6887, -5.901e-26),
    (Erf, 0x3fe0_2979_80b5_3c08, 0x3fe0_cc4a_2d66_bec5, 4.666e-17),
    (Erf, 0x3fe0_9282_1101_e407, 0x3fe1_2786_96f5_3804, 4.544e-17),
    (Erf, 0x3fe1_250c_3ffa_7640, 0x3fe1_a4cd_3dcd_ccf3, 4.493e-17),
    (Erf, 0xbfef_e930_8966_26fc, 0xbfea_ede8_e47b_bb34, -1.166e-17),
    (Erf, 0x3fcd_0d41_86e1_f040, 0x3fd0_1d12_2b17_076f, 2.588e-17),
    (Erf, 0xbf6d_5e66_68af_7740, 0xbf70_91c8_e96f_b3f4, -3.922e-19),
    (Erf, 0xbfe2_b954_799b_6eb4, 0xbfe2_f1fe_4fa1_a81d, -5.250e-17),
    (Erf, 0xbfd6_a2c2_81c0_af78, 0xbfd8_83f9_4f05_6e5f, -2.125e-17),
    (Erf, 0xc001_d201_d43d_a894, 0xbfef_f2a2_8ee0_7c40, -3.995e-17),
    (Erf, 0xc00e_8343_9fcc_13a8, 0xbfef_ffff_dafe_9b4f, -2.623e-17),
    (Erf, 0x400c_b358_2ddf_bbe8, 0x3fef_ffff_2e6a_e051, 1.242e-17),
];

#[test]
fn values_are_within_the_bounds_of_exact_ones() {
    for (op, x, nearest, rest) in EXACT {
        let [x, nearest] = [x, nearest].map(f64::from_bits);
        let bound = op.double_error().expect("a bound").at(x, nearest);
        let found = op.apply_double(x);
        let error = (found - nearest) - rest;
        assert!(error.abs() <= bound, "{} {x:e}: {found:e}, off by {error:e} of {bound:e}", op.name());
    }
}

#[test]
fn values_lie_beside_those_of_the_standard_library() {
    let mut seed = 1u64;
    let mut next = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        seed >> 11
    };
    for op in UnaryOp::ALL.into_iter().filter(|op| op.double_error().is_some()) {
        for k in 0..4000 {
            let unit = next() as f64 / (1u64 << 53) as f64;
            let sign = if next() % 2 == 0 { 1.0 } else { -1.0 };
            let range = [1.0, 30.0, 745.0][k % 3];
            let x = match op {
                Log | Log2 | Rsqrt => f64::from_bits((next() << 11) % f64::INFINITY.to_bits()),
                _ => sign * unit * range,
            };
            let (found, expected) = (op.apply_double(x), op.exact(x));
            // Theirs is off by a unit of its own.
            let bound = op.double_error().expect("a bound").at(x, expected) + expected.abs() * 2f64.powi(-52);
            let close = (found - expected).abs() <= bound + f64::from_bits(1) || found == expected;
            assert!(close, "{} {x:e}: {found:e} beside {expected:e}", op.name());
        }
    }
}

#[test]
fn ends_are_what_functions_are_there() {
    let (infinity, nan) = (f64::INFINITY, f64::NAN);
    let cases = [
        (Exp, 0.0, 1.0),
        (Exp, infinity, infinity),
        (Exp, -infinity, 0.0),
        (Exp, 709.783, infinity),
        (Exp, -745.2, 0.0),
        (Exp2, -1074.0, 5e-324),
        (Exp2, 1023.0, 2f64.powi(1023)),
        (Exp2, 1024.0, infinity),
        (Log, 0.0, -infinity),
        (Log, -1.0, nan),
        (Log, infinity, infinity),
        (Log, 1.0, 0.0),
        (Log2, 5e-324, -1074.0),
        (Log2, 2f64.powi(1000), 1000.0),
        (Rsqrt, 0.0, infinity),
        (Rsqrt, 4.0, 0.5),
        (Rsqrt, -1.0, nan),
        (Tanh, infinity, 1.0),
        (Tanh, -50.0, -1.0),
        (Tanh, 1e-310, 1e-310),
        (Sin, 0.0, 0.0),
        (Sin, infinity, nan),
        (Sin, 1e300, 0.0),
        (Cos, 0.0, 1.0),
        (Cos, 1e300, 1.0),
        (Erf, infinity, 1.0),
        (Erf, -7.0, -1.0),
        (Erf, 0.0, 0.0),
    ];
    for (op, x, expected) in cases {
        let found = op.apply_double(x);
        assert!(found == expected || found.is_nan() && expected.is_nan(), "{} {x:e}: {found:e}", op.name());
    }
    for op in UnaryOp::ALL.into_iter().filter(|op| op.double_error().is_some()) {
        assert!(op.apply_double(nan).is_nan(), "{}", op.name());
    }
}
